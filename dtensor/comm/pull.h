// Collectives by reading and writing peers' memory: loops over pointers, for
// backends whose members share an address space. Nobody is waited for here, and
// what is read has to be there.
#pragma once
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "dtensor/comm/communicator.h"
#include "dtensor/comm/pieces.h"
#include "dtensor/device/device.h"
#include "dtensor/placement/region.h"

namespace dtensor {

class Pull {
 public:
  // Whose work it is.
  struct Place {
    Device& device;
    Stream stream;
  };
  // `self` of `size` members. Keeps memory from call to call.
  Pull(int self, int size)
      : self_(self),
        from_(static_cast<size_t>(size)),
        to_(static_cast<size_t>(size)) {}

  // Member m's side of the transfer that is `mine` here.
  using PeerOf = std::function<const Transfer&(int m)>;
  // See Communicator. `mine` is counted.
  void exchange(const Place&, Transfer& mine, const PeerOf&);
  void reduce(const Place&, Transfer& mine, const PeerOf&);

  // Where each member's elements of a buffer are, and where its result goes: to
  // be set before what follows.
  std::span<const char*> from() { return from_; }
  std::span<char*> to() { return to_; }
  // Part i of p: [floor(i*n/p), floor((i+1)*n/p)).
  static Interval chunk(int64_t n, int i, int p) {
    return {i * n / p, (i + 1) * n / p};
  }
  // All elements of all members, reduced into `to`.
  void reduce(const Place&, Buffer&, void* to);
  // This member's chunk, reduced into its place in every member's result.
  // Returns the bytes that each of the others received.
  int64_t push_chunk(const Place&, Buffer&);

 private:
  int size() const { return static_cast<int>(from_.size()); }
  void operands_at(int64_t bytes);  // of the members' elements

  const int self_;
  std::vector<const char*> from_;
  std::vector<char*> to_;
  std::vector<Operand> operands_;
  // Of a piece.
  Boxes boxes_;
  std::vector<const HeldRegion*> arrays_;
  std::vector<Sizes> strides_;
  std::vector<const void*> bases_;
};

}  // namespace dtensor
