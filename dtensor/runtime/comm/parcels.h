// What the members of a collective send each other of a transfer, where they
// share no memory: from one to another a parcel, that is the pieces of its
// schedule one after the other, each packed in row-major order.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "dtensor/placement/schedule.h"
#include "dtensor/runtime/comm/communicator.h"
#include "dtensor/runtime/device/device.h"

namespace dtensor {

class Parcels {
 public:
  // Whose work it is.
  struct Place {
    Device& device;
    Stream stream;
  };
  // The schedule says what it serves. The transfer outlives this.
  explicit Parcels(const Transfer&);

  // 0: none is sent.
  int64_t bytes_to(int m) const { return bytes(to_[index(m)]); }
  int64_t bytes_from(int m) const { return bytes(from_[index(m)]); }
  // Whether two members are sent the same.
  bool same(int m, int other) const {
    return to_[index(m)] == to_[index(other)];
  }

  // Where the parcel to m lies as it is to be sent; null: it has to be packed.
  const void* whole_to(int m) const;
  void pack(const Place&, int m, void* out) const;

  // Of an exchange: where the parcel of m, whole, has to come to; null: it has
  // to be unpacked.
  void* whole_from(int m) const;
  void unpack(const Place&, int m, const void* in) const;
  // What this member has itself.
  void copy_own(const Place&) const;

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

  // Of a reduction, from in[m], the parcel of m: in member order.
  void reduce(const Place&, std::span<const void* const> in) const;

 private:
  using Pieces = std::vector<const Piece*>;
  static size_t index(int m) { return static_cast<size_t>(m); }
  int64_t bytes(const Pieces&) const;
  void* whole(const Pieces&, const void* base, const HeldRegion&,
              const Shape& strides) const;

  const Transfer& t_;
  const Schedule& s_;
  Pieces order_;                   // all that is wanted, as it is sent
  std::vector<Pieces> to_, from_;  // of each member
};

}  // namespace dtensor
