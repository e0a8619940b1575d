// The messages for one transfer between members that do not share memory. A
// message from one member to another holds the pieces of the schedule one after
// another, each packed in row-major order. Members that share memory with each
// other may get one message, from which each of them reads its pieces.
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

// Only one thread may change an object, but share() of other members' objects
// reads it. reset() prepares it for another transfer, and keeps its memory.
class PackedMessages {
 public:
  PackedMessages() = default;
  explicit PackedMessages(const Transfer& t) { reset(t); }
  // Prepares the messages of `t`, whose schedule must have `serves` filled. `t`
  // must live until the next reset(), or as long as this object.
  void reset(const Transfer&);
  // Prepares messages to `peers` peers instead of to members. Peer p stands for
  // the members m with peer_of[m] = p; a member with -1 is sent nothing. A
  // piece that several members of a peer want is sent to the peer once.
  void reset(const Transfer&, std::span<const int> peer_of, int peers);

  // The size of the message to a peer (to a member, unless reset() was given
  // peers), or 0 if no message is sent.
  int64_t bytes_to(int peer) const { return bytes(to_[index(peer)]); }
  // The bytes that this member takes from member m's message.
  int64_t bytes_from(int m) const { return bytes(from_[index(m)]); }
  // Whether two peers are sent the same message.
  bool same(int peer, int other) const {
    return to_[index(peer)] == to_[index(other)];
  }
  // For a message from member m that serves all `takers`: finds where this
  // member's pieces lie in it. Returns the size of the message in bytes.
  int64_t share(int m, std::span<const PackedMessages* const> takers);

  // The address of the message to a peer if it lies packed in the source
  // already; null if it has to be packed.
  const void* whole_to(int peer) const;
  void pack(const Place&, int peer, void* out) const;

  // For an exchange: the address in the destination at which the message of
  // member m can be received directly; null if it has to be unpacked.
  void* whole_from(int m) const;
  void unpack(const Place&, int m, const void* in) const;
  // Copies the wanted pieces that this member holds itself.
  void copy_own(const Place& on) const { copy_from(on, s_->self, *t_); }
  // Copies those that member m holds; its memory must be readable here.
  void copy_from(const Place&, int m, const Transfer& theirs) const;

  // Set if this member's pieces allow an ordinary collective with `bytes` bytes
  // per member: an all-gather from `in` to `out`, or a reduce-scatter from one
  // chunk per member at `in` to `out`, all contiguous. The members may use it
  // only if all of them have it set.
  struct Even {
    const void* in;
    void* out;
    int64_t bytes;
  };
  std::optional<Even> all_gather() const;
  std::optional<Even> reduce_scatter() const;

  // The Transfer of member m if its memory can be read here; null if it sent a
  // message.
  using Readable = std::function<const Transfer*(int m)>;
  // For a reduction: reduces in member order. in[m] is the message of member m,
  // which is ignored if the member's memory is readable; this member's own
  // memory always is.
  void reduce(const Place&, std::span<const void* const> in,
              const Readable& = {}) const;

 private:
  using Pieces = std::vector<const Piece*>;
  static size_t index(int m) { return static_cast<size_t>(m); }
  int64_t bytes(const Pieces&) const;
  void* whole(const Pieces&, const HeldArray&) const;
  HeldArray source() const {
    return {t_->src, &s_->has[index(s_->self)], t_->src_strides};
  }
  HeldArray destination() const {
    return {t_->dst, &s_->wants, t_->dst_strides};
  }

  const Transfer* t_ = nullptr;
  const Schedule* s_ = nullptr;
  Pieces order_;              // all wanted pieces, in message order
  std::vector<Pieces> to_;    // by peer: pieces sent to it
  std::vector<Pieces> from_;  // by member: pieces taken from it
  // By member: where the pieces of from_ begin in its message, in elements.
  std::vector<std::vector<int64_t>> at_;
  // Scratch memory of one call.
  mutable PieceWork work_;
  mutable std::vector<size_t> next_;
};

}  // namespace dtensor
