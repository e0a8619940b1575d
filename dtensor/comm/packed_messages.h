// The messages for one transfer between members that do not share memory. A
// message from one member to another holds the pieces of the schedule one after
// the other, each packed in row-major order. Members that share memory may read
// their parts from one message to all of them.
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

// One thread changes the object; share() of the other members' objects reads
// it. Reusable for other transfers; it keeps its memory.
class PackedMessages {
 public:
  // The device and stream for packing, unpacking and reducing.
  struct Place {
    Device& device;
    Stream stream;
  };
  PackedMessages() = default;
  explicit PackedMessages(const Transfer& t) { reset(t); }
  // Prepares the messages of `t`. Its schedule must have `serves` filled. The
  // transfer must outlive this object, or the next reset().
  void reset(const Transfer&);
  // Sends to `peers` peers instead, each standing for the members that peer_of
  // maps to it; nothing is sent to a member with -1. A piece that several
  // members of one peer want is sent to it once.
  void reset(const Transfer&, std::span<const int> peer_of, int peers);

  // The size of the message to a peer (a member, unless reset() was given
  // peers). 0: no message is sent.
  int64_t bytes_to(int peer) const { return bytes(to_[index(peer)]); }
  // The bytes that this member takes from member m's message.
  int64_t bytes_from(int m) const { return bytes(from_[index(m)]); }
  // Whether two peers are sent the same message.
  bool same(int peer, int other) const {
    return to_[index(peer)] == to_[index(other)];
  }
  // For a message of member m that serves all `takers`: finds where in it the
  // pieces of this member lie. Returns the size of the message in bytes.
  int64_t share(int m, std::span<const PackedMessages* const> takers);

  // The address of the message to a peer, if it already lies in the source as
  // it is sent; null: it has to be packed.
  const void* whole_to(int peer) const;
  void pack(const Place&, int peer, void* out) const;

  // For an exchange: where in the destination the message of member m can be
  // received as it is; null: it has to be unpacked.
  void* whole_from(int m) const;
  void unpack(const Place&, int m, const void* in) const;
  // Copies what this member holds itself.
  void copy_own(const Place& on) const { copy_from(on, s_->self, *t_); }
  // Copies what member m holds; its memory must be readable here.
  void copy_from(const Place&, int m, const Transfer& theirs) const;

  // Set if, as far as this member can tell, the whole collective is an even one
  // of `bytes` bytes per member: an all-gather from `in` to `out`, or a
  // reduce-scatter of one chunk per member at `in` to `out`, all contiguous.
  // Only if every member has it set may they do it that way.
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
  // Indices of an array in memory; `held` null: the array holds nothing else.
  struct At {
    const void* data;
    const HeldRegion* held;
    Shape strides;
  };
  static size_t index(int m) { return static_cast<size_t>(m); }
  int64_t bytes(const Pieces&) const;
  void* whole(const Pieces&, const At&) const;
  void copy(const Place&, const Region&, const At& to, const At& from) const;
  At source() const;
  At destination() const;

  const Transfer* t_ = nullptr;
  const Schedule* s_ = nullptr;
  Pieces order_;              // all wanted pieces, in message order
  std::vector<Pieces> to_;    // by peer: pieces sent to it
  std::vector<Pieces> from_;  // by member: pieces taken from it
  // By member: where the pieces of from_ begin in its message, in elements.
  std::vector<std::vector<int64_t>> at_;
  // Scratch memory of one call.
  mutable Boxes boxes_;
  mutable std::vector<size_t> next_;
  mutable std::vector<const HeldRegion*> arrays_;
  mutable std::vector<Sizes> strides_;
  mutable std::vector<const void*> bases_;
  mutable std::vector<Operand> operands_;
};

}  // namespace dtensor
