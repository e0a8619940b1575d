#include "tests/dtensor/file_nccl.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "dtensor/placement/error.h"

namespace dtensor::testing {
namespace {

struct Work {
  enum What : uint8_t { kGather, kScatter, kReduce, kSend, kReceive };
  What what;
  ReduceOp op;
  DType dtype;
  int peer;
  int64_t n;     // elements
  int64_t sent;  // bytes that follow, of this member
};
struct Mine {
  Work work;
  const void* in;
  void* out;
};
// Of one member, with what it has sent.
struct Sent {
  Work work;
  std::vector<char> data;
};

void write_file(const std::string& path, std::span<const char> data) {
  std::ofstream(path + ".part", std::ios::binary)
      .write(data.data(), std::ssize(data));
  std::filesystem::rename(path + ".part", path);
}
bool is_there(const std::string& path) {
  return access(path.c_str(), F_OK) == 0;
}

class FileLink final : public NcclLink {
 public:
  FileLink(std::string folder, int size, int rank, Device& device)
      : folder_(std::move(folder)), size_(size), rank_(rank), device_(device) {
    std::filesystem::create_directories(folder_);
    write_file(path(rank_), {});
  }

  bool settled() override {
    if (!linked_) return linked_ = all_there();
    if (!open_) return true;
    if (!all_there()) return false;
    std::vector<std::vector<Sent>> all;
    for (int m = 0; m < size_; ++m) all.push_back(read(path(m)));
    for (size_t i = 0; i < works_.size(); ++i) carry_out(all, i);
    // All have read what was there before this call.
    std::remove((folder_ + fmt::format("/{}.{}", call_ - 1, rank_)).c_str());
    works_.clear();
    open_ = false;
    return true;
  }

  void all_gather(Stream s, const void* in, void* out, int64_t bytes) override {
    add(s, {{Work::kGather, {}, DType::kBool, -1, bytes, bytes}, in, out});
  }
  void reduce_scatter(Stream s, ReduceOp op, DType dtype, const void* in,
                      void* out, int64_t n) override {
    add(s, {{Work::kScatter, op, dtype, -1, n, n * size_ * size_of(dtype)},
            in,
            out});
  }
  void all_reduce(Stream s, ReduceOp op, DType dtype, void* data,
                  int64_t n) override {
    add(s, {{Work::kReduce, op, dtype, -1, n, n * size_of(dtype)}, data, data});
  }
  void begin_group() override { group_ = true; }
  void end_group() override {
    group_ = false;
    call();
  }
  void drop_group() noexcept override {
    group_ = false;
    works_.clear();
  }
  void send(Stream s, const void* data, int64_t bytes, int to) override {
    add(s, {{Work::kSend, {}, DType::kBool, to, bytes, bytes}, data, nullptr});
  }
  void receive(Stream s, void* data, int64_t bytes, int from) override {
    add(s, {{Work::kReceive, {}, DType::kBool, from, bytes, 0}, nullptr, data});
  }
  void register_memory(void*, int64_t) override {
    fail("nccl", "memory that nobody has given");
  }
  void abort() noexcept override {}

 private:
  std::string path(int m) const {
    return fmt::format("{}/{}.{}", folder_, call_, m);
  }
  bool all_there() const {
    for (int m = 0; m < size_; ++m)
      if (!is_there(path(m))) return false;
    return true;
  }

  void add(Stream s, const Mine& work) {
    DT_CHECK(work.work.n > 0 && work.work.peer != rank_, "nccl",
             "{} elements for {}", work.work.n, work.work.peer);
    stream_ = s;
    works_.push_back(work);
    if (!group_) call();
  }
  void call() {
    DT_CHECK(linked_ && !open_, "nccl",
             "a call before the one ahead of it is settled");
    ++call_;
    int member = 0;
    int64_t at = 0;
    if (const char* kill = std::getenv("FILE_NCCL_KILL"))
      if (std::sscanf(kill, "%d %ld", &member, &at) == 2 && member == rank_ &&
          at == call_)
        std::raise(SIGKILL);
    std::vector<char> text;
    for (const Mine& m : works_) {
      const auto* head = reinterpret_cast<const char*>(&m.work);
      text.insert(text.end(), head, head + sizeof(Work));
      const size_t begin = text.size();
      text.resize(begin + static_cast<size_t>(m.work.sent));
      if (m.work.sent > 0)
        device_.to_host(stream_, text.data() + begin, m.in, m.work.sent);
    }
    write_file(path(rank_), text);
    open_ = true;
  }

  static std::vector<Sent> read(const std::string& path) {
    std::ifstream in(path, std::ios::binary);
    std::vector<Sent> all;
    for (Work w; in.read(reinterpret_cast<char*>(&w), sizeof(w));) {
      all.push_back({w, std::vector<char>(static_cast<size_t>(w.sent))});
      in.read(all.back().data.data(), w.sent);
    }
    return all;
  }
  // The k-th work of this kind to or from a peer.
  static const Sent& kth(const std::vector<Sent>& all, Work::What what,
                         int peer, int64_t k) {
    for (const Sent& s : all)
      if (s.work.what == what && s.work.peer == peer && k-- == 0) return s;
    fail("nccl", "a send without a receive, or the other way round");
  }
  void carry_out(const std::vector<std::vector<Sent>>& all, size_t i) {
    const Work& mine = works_[i].work;
    const int64_t k = std::count_if(
        works_.begin(), works_.begin() + static_cast<int64_t>(i),
        [&](const Mine& m) {
          return m.work.what == mine.what && m.work.peer == mine.peer;
        });
    if (mine.peer >= 0) {
      const bool sends = mine.what == Work::kSend;
      const Sent& other = kth(all[static_cast<size_t>(mine.peer)],
                              sends ? Work::kReceive : Work::kSend, rank_, k);
      DT_CHECK(other.work.n == mine.n, "nccl", "{} bytes meet {}", mine.n,
               other.work.n);
      if (!sends)
        device_.from_host(stream_, works_[i].out, other.data.data(), mine.n);
      return;
    }
    const int64_t bytes = mine.n * size_of(mine.dtype), unit[] = {1};
    const int64_t shape[] = {mine.n};
    std::vector<Operand> operands;
    for (int m = 0; m < size_; ++m) {
      const Sent& other = kth(all[static_cast<size_t>(m)], mine.what, -1, k);
      DT_CHECK(other.work.n == mine.n && other.work.op == mine.op &&
                   other.work.dtype == mine.dtype,
               "nccl", "collectives that are not the same");
      const char* data = other.data.data();
      if (mine.what == Work::kGather)
        device_.from_host(stream_,
                          static_cast<char*>(works_[i].out) + m * bytes, data,
                          bytes);
      else
        operands.push_back(
            {data + (mine.what == Work::kScatter ? rank_ * bytes : 0), unit});
    }
    if (mine.what == Work::kGather) return;
    std::vector<char> result(static_cast<size_t>(bytes));
    cpu().reduce({}, mine.op, mine.dtype, shape, result.data(), unit, operands,
                 size_);
    device_.from_host(stream_, works_[i].out, result.data(), bytes);
  }

  const std::string folder_;
  const int size_, rank_;
  Device& device_;
  Stream stream_;
  std::vector<Mine> works_;
  int64_t call_ = 0;  // 0: to be linked
  bool linked_ = false, group_ = false, open_ = false;
};

class FileNccl final : public NcclLibrary {
 public:
  FileNccl(std::string folder, std::function<FileGpu(Stream)> gpu_of)
      : folder_(std::move(folder)), gpu_of_(std::move(gpu_of)) {}
  Gpu gpu(Stream stream) override { return gpu_of_(stream).gpu; }
  Id make_id() override {
    static std::atomic<int> ids;
    const std::string name = fmt::format("{}.{}", getpid(), ++ids);
    Id id{};
    std::copy(name.begin(), name.end(), id.begin());
    return id;
  }
  std::unique_ptr<NcclLink> link(const Id& id, int size, int rank,
                                 Stream stream) override {
    return std::make_unique<FileLink>(folder_ + "/" + id.data(), size, rank,
                                      *gpu_of_(stream).device);
  }

 private:
  const std::string folder_;
  const std::function<FileGpu(Stream)> gpu_of_;
};

}  // namespace

std::unique_ptr<NcclLibrary> file_nccl(std::string folder,
                                       std::function<FileGpu(Stream)> gpu_of) {
  return std::make_unique<FileNccl>(std::move(folder), std::move(gpu_of));
}

}  // namespace dtensor::testing
