// What the members of a collective send each other of a transfer, where they
// share no memory: from one to another a message, that is the pieces of its
// schedule one after the other, each packed in row-major order. Members that
// share memory among themselves may take theirs from one message for all.
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

// Changed by one thread; share() of those of others reads it. What it is made
// of may change, and it keeps its memory.
class PackedMessages {
 public:
  // Whose work it is.
  struct Place {
    Device& device;
    Stream stream;
  };
  PackedMessages() = default;
  explicit PackedMessages(const Transfer& t) { reset(t); }
  // The schedule says what it serves. The transfer outlives this, or the next
  // reset().
  void reset(const Transfer&);
  // What is sent goes to `peers`, each of which stands for the members that
  // peer_of names it for (-1: nothing is sent to that one): a piece that
  // several of them take is sent once.
  void reset(const Transfer&, std::span<const int> peer_of, int peers);

  // To a peer, which is a member where nothing else was said. 0: none is sent.
  int64_t bytes_to(int peer) const { return bytes(to_[index(peer)]); }
  // Of member m's message, what this member takes.
  int64_t bytes_from(int m) const { return bytes(from_[index(m)]); }
  // Whether two peers are sent the same.
  bool same(int peer, int other) const {
    return to_[index(peer)] == to_[index(other)];
  }
  // Member m's message is for all of these: finds where in it this one's pieces
  // are. Returns its bytes.
  int64_t share(int m, std::span<const PackedMessages* const> takers);

  // Where the message to a peer lies as it is to be sent; null: it has to be
  // packed.
  const void* whole_to(int peer) const;
  void pack(const Place&, int peer, void* out) const;

  // Of an exchange: where the message of m, whole, has to come to; null: it has
  // to be unpacked.
  void* whole_from(int m) const;
  void unpack(const Place&, int m, const void* in) const;
  // What this member has itself.
  void copy_own(const Place& on) const { copy_from(on, s_->self, *t_); }
  // What member m has, whose memory can be read here.
  void copy_from(const Place&, int m, const Transfer& theirs) const;

  // Where all members say so, it is one collective of `bytes` bytes each way:
  // an all-gather of what is at `in`, or a reduce-scatter of as many at `in` as
  // there are members, to `out`, all of it contiguous.
  struct Even {
    const void* in;
    void* out;
    int64_t bytes;
  };
  std::optional<Even> all_gather() const;
  std::optional<Even> reduce_scatter() const;

  // Member m's side where its memory can be read, null where it sent a message.
  using Readable = std::function<const Transfer*(int m)>;
  // Of a reduction, in member order, from in[m], the message of m, or from m's
  // memory; that of this member is always readable.
  void reduce(const Place&, std::span<const void* const> in,
              const Readable& = {}) const;

 private:
  using Pieces = std::vector<const Piece*>;
  // Some indices of one memory; `held` null: it holds them alone.
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
  Pieces order_;              // all that is wanted, as it is sent
  std::vector<Pieces> to_;    // of each peer
  std::vector<Pieces> from_;  // of each member
  // Where they begin in its message, in elements.
  std::vector<std::vector<int64_t>> at_;
  // Of one call.
  mutable Boxes boxes_;
  mutable std::vector<size_t> next_;
  mutable std::vector<const HeldRegion*> arrays_;
  mutable std::vector<Sizes> strides_;
  mutable std::vector<const void*> bases_;
  mutable std::vector<Operand> operands_;
};

}  // namespace dtensor
