// SPDX-License-Identifier: Apache-2.0
#include <nccl.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/cuda/emulation/api.h"
#include "tests/cuda/emulation/reduce.h"

namespace emulation {
namespace {

Machine& machine() { return Machine::get(); }

struct Op {
  enum What : uint8_t { kGather, kScatter, kReduce, kSend, kReceive };
  What what;
  const void* in;
  void* out;
  size_t count;
  ncclDataType_t type = ncclUint8;
  ncclRedOp_t op = ncclSum;
  int peer = -1;

  bool collective() const { return peer < 0; }
  size_t bytes() const { return count * size_of(type); }
  bool same(const Op& o) const {
    return what == o.what && count == o.count && type == o.type && op == o.op;
  }
};

class Call;

// The state that all members share, guarded by the machine's mutex.
struct Room {
  struct Member {
    int device = -1;  // once it has come
    bool gone = false, aborted = false;
    ncclResult_t error = ncclSuccess;
    std::string why;
    Call* current = nullptr;           // its stream has come to this one
    std::deque<cudaStream_t> planned;  // streams of its unfinished calls
  };
  explicit Room(int size) : members(static_cast<size_t>(size)) {}
  bool all_came() const {
    return std::ranges::all_of(members,
                               [](const Member& m) { return m.device >= 0; });
  }
  bool all_gone() const {
    return std::ranges::all_of(
        members, [](const Member& m) { return m.gone || m.aborted; });
  }
  void fail(ncclResult_t error, const std::string& why) {
    for (Member& m : members)
      if (m.error == ncclSuccess) m.error = error, m.why = why;
  }
  std::vector<Member> members;
};

// The operations that one member gives a stream as one call.
class Call final : public Meeting {
 public:
  Call(std::shared_ptr<Room> room, size_t rank,
       std::shared_ptr<const std::vector<Op>> ops, cudaStream_t s)
      : room_(std::move(room)), rank_(rank), ops_(std::move(ops)), stream_(s) {
    room_->members[rank_].planned.push_back(s);
  }
  ~Call() override {
    Room::Member& me = room_->members[rank_];
    if (me.current == this) me.current = nullptr;
  }

  bool come() override {
    Room::Member& me = room_->members[rank_];
    me.current = this;
    with_.clear();
    if (me.aborted) return true;
    find();
    return std::ranges::all_of(with_, [&](size_t m) {
      return room_->members[m].current != nullptr && !room_->members[m].aborted;
    });
  }
  std::vector<cudaStream_t> behind() override {
    std::vector<cudaStream_t> streams;
    for (const size_t m : with_) {
      const Room::Member& member = room_->members[m];
      if (!member.current && !member.planned.empty())
        streams.push_back(member.planned.front());
    }
    return streams;
  }
  void run() override;
  void end() override {
    if (with_.empty()) leave();
    for (const size_t m : with_)
      if (Call* call = room_->members[m].current) call->leave();
  }

 private:
  // The bytes that a member gets.
  struct Result {
    size_t rank;
    void* to;
    std::vector<char> bytes;
  };

  void leave() {
    over = true;
    Room::Member& me = room_->members[rank_];
    me.planned.erase(std::ranges::find(me.planned, stream_));
    me.current = nullptr;
  }
  // Finds the members that this call needs, and those that their calls need.
  void find() {
    with_ = {rank_};
    for (size_t i = 0; i < with_.size(); ++i) {
      const Call* call = room_->members[with_[i]].current;
      if (!call) continue;
      for (const Op& op : *call->ops_)
        for (size_t m = 0; m < room_->members.size(); ++m)
          if ((op.collective() || op.peer == static_cast<int>(m)) &&
              !std::ranges::count(with_, m))
            with_.push_back(m);
    }
  }
  const std::vector<Op>& of(size_t m) const {
    return *room_->members[m].current->ops_;
  }
  // Member m's k-th operation of this kind with that peer, or null.
  const Op* kth(size_t m, Op::What what, int peer, size_t k) const {
    for (const Op& op : of(m))
      if (op.collective() == (peer < 0) &&
          (peer < 0 || (op.what == what && op.peer == peer)) && k-- == 0)
        return &op;
    return nullptr;
  }
  // The number of such operations of member m before `op`.
  size_t before(size_t m, const Op& op) const {
    size_t n = 0;
    for (const Op& o : of(m)) {
      if (&o == &op) break;
      n += op.collective() ? o.collective()
                           : o.what == op.what && o.peer == op.peer;
    }
    return n;
  }
  bool add(size_t rank, const Op& op, std::vector<Result>& results) const;
  std::vector<char> read(size_t rank, size_t from, const void* data,
                         size_t bytes) const;

  const std::shared_ptr<Room> room_;
  const size_t rank_;
  const std::shared_ptr<const std::vector<Op>> ops_;
  const cudaStream_t stream_;
  std::vector<size_t> with_;
};

// Reads as that member's GPU, or through the host if the GPU cannot reach it.
std::vector<char> Call::read(size_t rank, size_t from, const void* data,
                             size_t bytes) const {
  const int own = room_->members[rank].device,
            other = room_->members[from].device;
  std::vector<char> copy(bytes);
  machine().carry_out(machine().memory().reaches(own, other) ? own : other,
                      [&] { std::memcpy(copy.data(), data, bytes); });
  return copy;
}

// Adds what a member gets by an operation. False if the others' do not fit.
bool Call::add(size_t rank, const Op& op, std::vector<Result>& results) const {
  const size_t k = before(rank, op);
  if (!op.collective()) {
    const auto peer = static_cast<size_t>(op.peer);
    const Op* other = kth(peer, op.what == Op::kSend ? Op::kReceive : Op::kSend,
                          static_cast<int>(rank), k);
    if (!other || other->bytes() != op.bytes()) return false;
    if (op.what == Op::kReceive)
      results.push_back(
          {rank, op.out, read(rank, peer, other->in, op.bytes())});
    return true;
  }
  std::vector<std::vector<char>> parts;
  for (size_t m = 0; m < room_->members.size(); ++m) {
    const Op* other = kth(m, op.what, -1, k);
    if (!other || !other->same(op)) return false;
    const size_t first = op.what == Op::kScatter ? rank * op.bytes() : 0;
    parts.push_back(
        read(rank, m, static_cast<const char*>(other->in) + first, op.bytes()));
  }
  Result result{rank, op.out, {}};
  if (op.what == Op::kGather) {
    for (const auto& part : parts)
      result.bytes.insert(result.bytes.end(), part.begin(), part.end());
  } else {
    result.bytes = reduced(op.type, op.op, parts);
  }
  results.push_back(std::move(result));
  return true;
}

// Reads everything before it writes: some results overwrite operands.
void Call::run() {
  std::vector<Result> results;
  for (const size_t m : with_)
    for (const Op& op : of(m))
      if (!add(m, op, results)) {
        Lock lock(machine().mutex);
        return room_->fail(ncclInvalidUsage,
                           "calls of members that do not fit together");
      }
  for (const Result& r : results)
    if (!machine().carry_out(room_->members[r.rank].device, [&] {
          std::memcpy(r.to, r.bytes.data(), r.bytes.size());
        })) {
      Lock lock(machine().mutex);
      room_->fail(ncclUnhandledCudaError, "an illegal memory access");
    }
}

// The rooms by the number in their ids.
std::map<int64_t, std::shared_ptr<Room>>& rooms() {
  static auto* const all = new std::map<int64_t, std::shared_ptr<Room>>;
  return *all;
}
int64_t last_id = 0;

thread_local std::string last_error;
thread_local int groups = 0;
thread_local std::vector<ncclComm_t> in_group;

ncclResult_t refuse(ncclResult_t error, const std::string& why) {
  last_error = why;
  return error;
}
}  // namespace
}  // namespace emulation

using namespace emulation;

struct ncclComm {
  std::shared_ptr<Room> room;
  size_t rank;
  int device;
  // The call in progress, and how often its state was asked for.
  std::vector<Op> ops;
  cudaStream_t stream = nullptr;
  bool called = false;
  int asked = 0;
  bool finalized = false;

  Room::Member& me() const { return room->members[rank]; }
};

namespace {

ncclResult_t end_call(ncclComm_t c) {
  if (c->ops.empty()) return ncclSuccess;
  c->called = true;
  c->asked = 0;
  return ncclInProgress;
}

ncclResult_t add(ncclComm_t c, cudaStream_t s, const Op& op) {
  if (!s || s->device != c->device)
    return refuse(ncclInvalidArgument, "a stream of another device");
  if (op.peer >= static_cast<int>(c->room->members.size()) ||
      op.peer == static_cast<int>(c->rank))
    return refuse(ncclInvalidArgument, "no such peer");
  if (c->called || c->finalized || !c->room->all_came())
    return refuse(ncclInvalidUsage, "the call before is in progress");
  if (!c->ops.empty() && c->stream != s)
    return refuse(ncclInvalidUsage, "a group of calls in two streams");
  c->stream = s;
  c->ops.push_back(op);
  if (groups == 0) return end_call(c);
  if (!std::ranges::count(in_group, c)) in_group.push_back(c);
  return ncclSuccess;
}

// Gives the call to the stream.
ncclResult_t hand_over(ncclComm_t c) {
  c->called = false;
  const auto ops =
      std::make_shared<const std::vector<Op>>(std::exchange(c->ops, {}));
  const auto meet = [room = c->room, rank = c->rank, ops](cudaStream_t s) {
    return std::make_shared<Call>(room, rank, ops, s);
  };
  const cudaError_t failure = failed(c->device);
  const cudaError_t e =
      failure ? failure : machine().give(c->stream, {c->device, {}, meet});
  if (e == cudaSuccess) return ncclSuccess;
  return refuse(ncclUnhandledCudaError, cudaGetErrorString(e));
}

}  // namespace

const char* ncclGetErrorString(ncclResult_t result) {
  switch (result) {
    case ncclSuccess:
      return "no error";
    case ncclUnhandledCudaError:
      return "unhandled cuda error";
    case ncclSystemError:
      return "unhandled system error";
    case ncclInternalError:
      return "internal error";
    case ncclInvalidArgument:
      return "invalid argument";
    case ncclInvalidUsage:
      return "invalid usage";
    case ncclRemoteError:
      return "remote process exited or there was a network error";
    case ncclInProgress:
      return "NCCL operation in progress";
  }
  return "unknown result code";
}
const char* ncclGetLastError(ncclComm_t) { return last_error.c_str(); }

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  Lock lock(machine().mutex);
  *id = {};
  ++last_id;
  std::memcpy(id->internal, &last_id, sizeof(last_id));
  return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* made, int size, ncclUniqueId id,
                                    int rank, ncclConfig_t* config) {
  int64_t number = 0;
  std::memcpy(&number, id.internal, sizeof(number));
  Lock lock(machine().mutex);
  if (config->blocking != 0 || number < 1 || number > last_id)
    return refuse(ncclSystemError,
                  "members are threads of one process, and do not block");
  auto& room = rooms()[number];
  if (!room) room = std::make_shared<Room>(size);
  if (size != static_cast<int>(room->members.size()) || rank < 0 ||
      rank >= size || room->members[static_cast<size_t>(rank)].device >= 0)
    return refuse(ncclInvalidArgument, "no such rank");
  const int device = current_device();
  if (std::ranges::count(room->members, device, &Room::Member::device))
    room->fail(ncclInvalidUsage, "Duplicate GPU detected");
  room->members[static_cast<size_t>(rank)].device = device;
  *made = new ncclComm{.room = room,
                       .rank = static_cast<size_t>(rank),
                       .device = device,
                       .ops = {}};
  return ncclInProgress;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t c, ncclResult_t* state) {
  Lock lock(machine().mutex);
  *state = c->me().error;
  if (*state != ncclSuccess) {
    last_error = c->me().why;
    return ncclSuccess;
  }
  if (!c->room->all_came() ||
      (c->finalized && !(c->room->all_gone() && c->me().planned.empty())) ||
      (c->called && ++c->asked < 2))
    *state = ncclInProgress;
  else if (c->called)
    *state = hand_over(c);
  return ncclSuccess;
}

ncclResult_t ncclCommFinalize(ncclComm_t c) {
  Lock lock(machine().mutex);
  c->finalized = true;
  c->me().gone = true;
  return c->room->all_gone() && c->me().planned.empty() ? ncclSuccess
                                                        : ncclInProgress;
}
ncclResult_t ncclCommDestroy(ncclComm_t c) {
  delete c;
  return ncclSuccess;
}
ncclResult_t ncclCommAbort(ncclComm_t c) {
  {
    Lock lock(machine().mutex);
    c->me().aborted = true;
    machine().poke();
  }
  delete c;
  return ncclSuccess;
}

ncclResult_t ncclGroupStart() {
  ++groups;
  return ncclSuccess;
}
ncclResult_t ncclGroupEnd() {
  if (groups == 0) return refuse(ncclInvalidUsage, "no group was begun");
  if (--groups > 0) return ncclSuccess;
  ncclResult_t result = ncclSuccess;
  Lock lock(machine().mutex);
  for (const ncclComm_t c : std::exchange(in_group, {}))
    if (const ncclResult_t e = end_call(c)) result = e;
  return result;
}

ncclResult_t ncclAllGather(const void* in, void* out, size_t count,
                           ncclDataType_t type, ncclComm_t c, cudaStream_t s) {
  Lock lock(machine().mutex);
  return add(c, s, {Op::kGather, in, out, count, type});
}
ncclResult_t ncclReduceScatter(const void* in, void* out, size_t count,
                               ncclDataType_t type, ncclRedOp_t op,
                               ncclComm_t c, cudaStream_t s) {
  Lock lock(machine().mutex);
  return add(c, s, {Op::kScatter, in, out, count, type, op});
}
ncclResult_t ncclAllReduce(const void* in, void* out, size_t count,
                           ncclDataType_t type, ncclRedOp_t op, ncclComm_t c,
                           cudaStream_t s) {
  Lock lock(machine().mutex);
  return add(c, s, {Op::kReduce, in, out, count, type, op});
}
ncclResult_t ncclSend(const void* data, size_t count, ncclDataType_t type,
                      int peer, ncclComm_t c, cudaStream_t s) {
  Lock lock(machine().mutex);
  return add(c, s, {Op::kSend, data, nullptr, count, type, ncclSum, peer});
}
ncclResult_t ncclRecv(void* data, size_t count, ncclDataType_t type, int peer,
                      ncclComm_t c, cudaStream_t s) {
  Lock lock(machine().mutex);
  return add(c, s, {Op::kReceive, nullptr, data, count, type, ncclSum, peer});
}
