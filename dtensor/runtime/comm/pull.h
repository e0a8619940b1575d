// Collectives by reading peers' memory: loops over pointers, for backends whose
// members share an address space. Nobody is waited for
// here, and what is read has to be there.
#pragma once
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "dtensor/placement/region.h"
#include "dtensor/runtime/comm/communicator.h"
#include "dtensor/runtime/comm/pieces.h"
#include "dtensor/runtime/device/device.h"

namespace dtensor {

class Pull {
 public:
  // Whose work it is.
  struct Place {
    Device& device;
    Stream stream;
  };
  // `self` of `size` members. Keeps memory from call to call.
  Pull(int self, int size) : self_(self), at_(static_cast<size_t>(size)) {}

  // Member m's side of the transfer that is `mine` here.
  using PeerOf = std::function<const Transfer&(int m)>;
  // See Communicator. `mine` is counted.
  void exchange(const Place&, Transfer& mine, const PeerOf&);
  void reduce(const Place&, Transfer& mine, const PeerOf&);

  // Where each member's elements of a buffer are: to be set before what
  // follows.
  std::span<char*> at() { return at_; }
  // Part i of p: [floor(i*n/p), floor((i+1)*n/p)).
  static Interval chunk(int64_t n, int i, int p) {
    return {i * n / p, (i + 1) * n / p};
  }
  // These elements of all members, reduced into `to` (where the first of them
  // goes).
  void reduce(const Place&, Buffer&, Interval elements, char* to);
  // Member m's part of the buffer, from where it is into the buffer.
  void collect(const Place&, Buffer&, int m);

 private:
  int size() const { return static_cast<int>(at_.size()); }

  const int self_;
  std::vector<char*> at_;
  std::vector<Operand> operands_;
  // Of a piece.
  Boxes boxes_;
  std::vector<const HeldRegion*> arrays_;
  std::vector<Sizes> strides_;
  std::vector<const void*> bases_;
};

}  // namespace dtensor
