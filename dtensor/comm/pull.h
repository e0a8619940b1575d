// Collectives that read and write peers' memory directly, for backends in which
// members share an address space. Nothing here waits: the data must be ready.
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
  // Member `self` of `size` members. Keeps its scratch memory from call to
  // call.
  Pull(int self, int size)
      : self_(self),
        from_(static_cast<size_t>(size)),
        to_(static_cast<size_t>(size)) {}

  // Returns member m's side of the transfer `mine`.
  using PeerOf = std::function<const Transfer&(int m)>;
  // As in Communicator. They set mine.counted.
  void exchange(const Place&, Transfer& mine, const PeerOf&);
  void reduce(const Place&, Transfer& mine, const PeerOf&);

  // By member: where its elements of a buffer are, and where its result goes.
  // Set them before the calls below.
  std::span<const char*> from() { return from_; }
  std::span<char*> to() { return to_; }
  // Reduces all elements of all members into `to`.
  void reduce(const Place&, Buffer&, void* to);
  // Reduces this member's chunk and writes it to every member's result. Returns
  // the bytes that each other member received.
  int64_t push_chunk(const Place&, Buffer&);

 private:
  int size() const { return static_cast<int>(from_.size()); }
  void operands_at(int64_t bytes);  // sets operands_ to the members' elements

  const int self_;
  std::vector<const char*> from_;
  std::vector<char*> to_;
  std::vector<Operand> operands_;
  PieceWork work_;
};

}  // namespace dtensor
