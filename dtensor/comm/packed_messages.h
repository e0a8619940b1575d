// SPDX-License-Identifier: Apache-2.0
// Moves the data of one transfer, on the side of one member. The member reads
// pieces from the memory of the members with which it shares memory, and from
// the messages of the other members. A message holds the pieces that the
// schedule names, one after another, each packed in row-major order. Members
// that share memory may receive one message together, from which each of them
// reads its pieces.
#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "dtensor/comm/communicator.h"
#include "dtensor/comm/pieces.h"
#include "dtensor/device/device.h"
#include "dtensor/placement/schedule.h"

namespace dtensor {

// The device and stream of some work.
struct Place {
  Device& device;
  Stream stream;
};

// Only one thread may change an object, but the share() calls of other members
// read it. reset() prepares the object for another transfer, and keeps its
// memory.
class PackedMessages {
 public:
  PackedMessages() = default;
  explicit PackedMessages(const Transfer& t) { reset(t); }
  // Prepares the messages of `t`, which needs a schedule with Schedule::serves.
  // `t` must live until the next reset() or the end of this object.
  void reset(const Transfer&);
  // Prepares messages to `peers` peers instead of to members. Peer p stands for
  // the members m with peer_of[m] = p; a member with -1 is sent nothing. A
  // piece that several members of a peer want is sent to the peer once. With 0
  // peers, all memory is readable, `serves` may be empty, and only exchange()
  // and reduce() may be called.
  void reset(const Transfer&, std::span<const int> peer_of, int peers);

  // The size of the message to a peer (to a member, unless reset() was given
  // peers), or 0 if no message is sent.
  int64_t bytes_to(int peer) const { return bytes(to_[index(peer)]); }
  // The bytes of the pieces that this member takes from member m.
  int64_t bytes_from(int m) const { return bytes(from_[index(m)]); }
  // For a message from member m that serves all `takers`: finds where this
  // member's pieces lie in it. Returns the size of the message in bytes.
  int64_t share(int m, std::span<const PackedMessages* const> takers);

  // Returns the address of the message to a peer. If the message already lies
  // packed in the source, returns its address there. If it equals the message
  // that was packed last, returns that one. Otherwise packs it into memory from
  // take(bytes).
  using Take = std::function<void*(int64_t bytes)>;
  const void* message_to(const Place&, int peer, const Take& take);

  // For an exchange: returns the address in the destination at which the
  // message of member m can be received directly, or null if the message has to
  // be unpacked.
  void* whole_from(int m) const;

  // An ordinary collective with `bytes` contiguous bytes per member: an
  // all-gather from `in` to `out`, or a reduce-scatter from one chunk per
  // member at `in` to `out`. all_gather() and reduce_scatter() return nullopt
  // if this member's pieces do not allow such a collective. The members may use
  // it only if all of them get one.
  struct Even {
    const void* in;
    void* out;
    int64_t bytes;
  };
  std::optional<Even> all_gather() const;
  std::optional<Even> reduce_scatter() const;

  // Returns the Transfer of member m if this process can read the member's
  // memory, or null if the member sent a message.
  using Readable = std::function<const Transfer*(int m)>;
  // Copy or reduce all wanted pieces; reductions are in member order. in[m] is
  // the message of member m. It is ignored if the member's memory is readable,
  // as this member's own memory always is. exchange() skips member m if in[m]
  // is null: its message was received directly at the destination. Both return
  // how many bytes they read from other members' memory and messages.
  int64_t exchange(const Place&, std::span<const void* const> in,
                   const Readable& = {});
  int64_t reduce(const Place&, std::span<const void* const> in,
                 const Readable& = {});

 private:
  using Pieces = std::vector<const Piece*>;
  static size_t index(int m) { return static_cast<size_t>(m); }
  int64_t bytes(const Pieces&) const;
  void* whole(const Pieces&, const HeldArray&) const;
  int64_t copy(const Place&, const Region&, const HeldArray& to,
               const HeldArray& from);
  const void* whole_to(int peer) const;
  // Whether two peers are sent the same message.
  bool same(int peer, int other) const {
    return to_[index(peer)] == to_[index(other)];
  }
  HeldArray array(const Piece&, int m, std::span<const void* const> in,
                  const Readable&);
  HeldArray source() const {
    return {t_->src, &s_->has[index(s_->self)], t_->src_strides};
  }
  HeldArray destination() const {
    return {t_->dst, &s_->wants, t_->dst_strides};
  }

  const Transfer* t_ = nullptr;
  const Schedule* s_ = nullptr;
  Pieces order_;              // wanted pieces; with peers, in message order
  std::vector<Pieces> to_;    // the pieces sent to each peer
  std::vector<Pieces> from_;  // the pieces taken from each member
  // By member: where the pieces of from_ begin in its message, in elements.
  std::vector<std::vector<int64_t>> at_;
  // The message that was packed last, and its peer.
  const void* packed_ = nullptr;
  int packed_for_ = -1;
  // Scratch memory, reused by each call.
  mutable Boxes boxes_;
  std::vector<HeldArray> arrays_;
  std::vector<Operand> operands_;
  std::vector<size_t> next_;  // each member's next index in at_
  Shape strides_;             // of the last piece that array() returned
};

}  // namespace dtensor
