// SPDX-License-Identifier: Apache-2.0
#include "dtensor/comm/tcp/tcp_job.h"

#include <signal.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <compare>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <deque>
#include <list>
#include <map>
#include <optional>
#include <thread>
#include <utility>

#include "dtensor/io/checksum.h"
#include "dtensor/placement/error.h"

namespace dtensor {
namespace {

using namespace std::chrono_literals;
using Clock = Socket::Clock;

// The most bytes in a piece. After a piece of data, another channel gets its
// turn, if it has something to send.
constexpr int64_t kPiece = 128 << 10;
// After about this many bytes on one connection, another one gets its turn.
constexpr int64_t kMostAtOnce = 512 << 10;
constexpr int64_t kMostText = 16 << 20;
// How long the others may take to say goodbye in a job that has failed.
constexpr auto kEnd = 1s;
// How long a process may take to end after another process ended the job.
constexpr auto kStop = 1s;
constexpr auto kTell = 200ms;

// The kind of a frame. The first four begin a message; kMore continues one.
enum Kind : uint32_t { kData = 1, kText, kGoodbye, kAbort, kMore };

// The channel of a message, in one run.
struct Key {
  int64_t run, from, to;
  int lane;
  auto operator<=>(const Key&) const = default;
};

// The header of each piece.
struct Frame {
  int64_t run = 0;           // the run's number; of a text: its matter
  int64_t from = 0, to = 0;  // ranks of the run
  int64_t total = 0;         // bytes of the message
  int32_t lane = 0;
  uint32_t kind = kData;
  uint32_t message = 0;  // the message's number in this direction
  uint32_t bytes = 0;    // the bytes of this piece
  uint64_t sum = 0;      // the checksum of all fields before
  Key key() const { return {run, from, to, lane}; }
  uint64_t sum_now() const { return checksum(this, offsetof(Frame, sum)); }
};
static_assert(sizeof(Frame) == 56);

// The sends and receives of one thread.
struct Batch {
  std::atomic<int64_t> left = 0;  // how many sends and receives are not done
  // The size of a receive for which a longer message has come; 0: none.
  std::atomic<int64_t> refused = 0;

  void begin() { left.fetch_add(1, std::memory_order_relaxed); }
  void end() { left.fetch_sub(1, std::memory_order_release); }
};

// An outgoing message.
struct Sending {
  Frame frame;
  const char* data = nullptr;  // the `left` bytes that are in no piece yet
  int64_t left = 0;
  Batch* batch = nullptr;  // null: a text, whose bytes are in `own`
  std::string own = {};
};

// An incoming message, until it is complete and a receive has taken it.
struct Coming {
  Frame frame;
  char* to = nullptr;  // where its next bytes go
  int64_t got = 0;
  std::unique_ptr<char[]> kept = nullptr;  // its bytes while `batch` is null
  Batch* batch = nullptr;  // the batch of its receive; null: none yet
};
struct Wanted {
  char* data;
  int64_t most;
  Batch* batch;
};
// A text that has come.
struct Heard {
  Frame frame;
  std::string text;
};
// The receiving side of one channel: receives that wait for their messages, and
// the numbers of messages in coming_ that came before their receives.
struct Inbox {
  std::deque<Wanted> wanted;
  std::deque<uint32_t> kept;
  bool dead = false;  // its receiver has given up: messages are dropped
};

}  // namespace

// A connection, guarded by the mutex of the job.
class TcpJob::Connection {
 public:
  explicit Connection(Socket s)
      : socket(std::move(s)), ended(!socket), deaf_(!socket) {}

  const Socket socket;
  bool ended;          // nothing more arrives
  std::string damage;  // why it ended, if a header was damaged; else ""
  std::optional<int64_t> goodbye;  // the last run that the process completed
  std::vector<Heard> heard;        // texts in the order of arrival

  // ---- Outgoing ----

  bool has_to_send() const { return !deaf_ && !queue_.empty(); }

  void add(Sending s) {
    if (deaf_) return;
    s.frame.message = messages_++;
    s.frame.total = s.left;
    // Texts overtake data, but not the piece that is being sent.
    const auto overtakes = [&](const Sending& other) {
      return other.batch && !s.batch && &other != &queue_.front();
    };
    const auto it = queue_.insert(
        std::find_if(queue_.begin(), queue_.end(), overtakes), std::move(s));
    if (!it->batch) it->data = it->own.data();
    if (queue_.size() == 1) begin_piece();
    flush();
  }
  void say(uint32_t kind, int64_t matter, std::string text) {
    DT_CHECK(std::ssize(text) <= kMostText, "tcp",
             "a control message has {} bytes, but at most {} can be sent, "
             "which is an error in dtensor; report it",
             text.size(), kMostText);
    add({.frame = {.run = matter, .kind = kind},
         .left = std::ssize(text),
         .own = std::move(text)});
  }
  // Sends as much as possible without waiting, up to about kMostAtOnce.
  void flush() {
    for (int64_t some = 0; some < kMostAtOnce && has_to_send();) {
      msghdr message{};
      message.msg_iov = out_;
      message.msg_iovlen = std::size(out_);
      ssize_t n = sendmsg(socket.fd(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) {
        deaf_ = errno != EAGAIN;  // bytes received earlier are still to be read
        return;
      }
      some += n;
      for (iovec& part : out_) {
        const size_t sent = std::min(part.iov_len, static_cast<size_t>(n));
        part = {static_cast<char*>(part.iov_base) + sent, part.iov_len - sent};
        n -= static_cast<ssize_t>(sent);
      }
      if (out_[1].iov_len == 0 && out_[0].iov_len == 0) end_piece();
    }
  }

  // ---- Incoming ----

  void receive(const Key& key, Wanted w) {
    Inbox& box = boxes_[key];
    if (box.dead || box.kept.empty()) return box.wanted.push_back(w);
    const auto it = coming_.find(box.kept.front());
    box.kept.pop_front();
    Coming& c = it->second;
    const bool taken = take(box, c, w);
    if (taken && c.got < c.frame.total) return;
    if (taken) w.batch->end();
    if (into_ == &c) into_ = nullptr;
    coming_.erase(it);
  }
  // Appends the ranks from which messages are still to come.
  void awaited(const Batch& batch, std::vector<int64_t>& ranks) const {
    for (const auto& [number, c] : coming_)
      if (c.batch == &batch) ranks.push_back(c.frame.from);
    for (const auto& [key, box] : boxes_)
      for (const Wanted& w : box.wanted)
        if (w.batch == &batch) ranks.push_back(key.from);
  }
  // Drops messages of earlier runs, including those that are still to come.
  void begin_run(int64_t run) {
    run_ = run;
    drop([&](const Coming& c) {
      return c.frame.kind == kData && c.frame.run < run;
    });
    std::erase_if(boxes_, [&](const auto& box) { return box.first.run < run; });
  }
  // Drops the batch: no memory of its sends and receives is used afterwards.
  void give_up(const Batch& batch) noexcept {
    const auto is_in = [&](const auto& x) { return x.batch == &batch; };
    for (auto& [key, box] : boxes_)
      if (std::erase_if(box.wanted, is_in) > 0) box.dead = true;
    drop(is_in);
    // A piece that has begun must be completed, or the receiver could not parse
    // the rest: it is sent from a copy.
    if (!queue_.empty() && is_in(queue_.front())) {
      std::memcpy(spare_.get(), out_[1].iov_base, out_[1].iov_len);
      out_[1].iov_base = spare_.get();
      queue_.front().batch = nullptr;
      queue_.front().left = 0;
    }
    queue_.remove_if(is_in);
  }
  // Reads as much as possible without waiting, up to about kMostAtOnce.
  void read() {
    for (int64_t some = 0; some < kMostAtOnce && !ended;) {
      // The rest of a piece goes to its place, the following bytes to stage_.
      iovec parts[] = {{into_ ? into_->to : nullptr,
                        into_ ? static_cast<size_t>(in_left_) : 0},
                       {stage_ + staged_, sizeof(stage_) - staged_}};
      msghdr message{};
      message.msg_iov = parts;
      message.msg_iovlen = 2;
      const ssize_t n = recvmsg(socket.fd(), &message, MSG_DONTWAIT);
      if (n < 0 && errno == EINTR) continue;
      if (n < 0 && errno == EAGAIN) return;
      if (n <= 0) {
        ended = deaf_ = true;
        return;
      }
      const size_t most = parts[0].iov_len + parts[1].iov_len;
      const size_t direct = std::min(parts[0].iov_len, static_cast<size_t>(n));
      if (direct > 0) filled(direct);
      staged_ += static_cast<size_t>(n) - direct;
      unpack();
      some += n;
      if (static_cast<size_t>(n) < most) return;
    }
  }

 private:
  void begin_piece() {
    Sending& s = queue_.front();
    const int64_t piece = std::min(kPiece, s.left);
    head_ = s.frame;
    head_.bytes = static_cast<uint32_t>(piece);
    head_.sum = head_.sum_now();
    out_[0] = {&head_, sizeof(head_)};
    out_[1] = {const_cast<char*>(s.data), static_cast<size_t>(piece)};
    s.frame.kind = kMore;
    s.data += piece;
    s.left -= piece;
  }
  // Texts stay in front until all their pieces are sent, to keep their order.
  void end_piece() {
    const Sending& s = queue_.front();
    const Key key = s.frame.key();
    const bool is_data = s.batch;
    if (s.left == 0) {
      if (is_data) s.batch->end();
      queue_.pop_front();
    }
    if (is_data) end_turn(key);
    if (!queue_.empty()) begin_piece();
  }
  // Puts this channel's messages behind those of other channels, in order.
  void end_turn(const Key& key) {
    std::list<Sending> later;
    for (auto it = queue_.begin(); it != queue_.end();) {
      const auto at = it++;
      if (at->batch && at->frame.key() == key)
        later.splice(later.end(), queue_, at);
    }
    queue_.splice(queue_.end(), later);
  }

  template <class Which>
  void drop(const Which& which) {
    if (into_ && which(*into_)) into_ = nullptr;
    std::erase_if(coming_, [&](const auto& c) { return which(c.second); });
  }
  // Gives the message to that receive; false if the message is too long.
  static bool take(Inbox& box, Coming& c, const Wanted& w) {
    if (c.frame.total > w.most) {
      w.batch->refused = w.most;
      w.batch->end();
      box.dead = true;
      return false;
    }
    if (c.kept) std::memcpy(w.data, c.kept.get(), static_cast<size_t>(c.got));
    c.kept = nullptr;
    c.to = w.data + c.got;
    c.batch = w.batch;
    return true;
  }
  // Handles the first header of a message. False if it makes no sense.
  bool begin_message() {
    const bool data = in_.kind == kData;
    if (in_.kind < kData || in_.kind > kAbort || in_.total < in_.bytes ||
        (in_.bytes == 0 && (data || in_.total > 0)) ||
        (!data && in_.total > kMostText))
      return false;
    Coming c{.frame = in_};
    if (data) {
      if (in_.run < run_) return true;
      Inbox& box = boxes_[in_.key()];
      if (box.dead) return true;
      if (box.wanted.empty()) {
        box.kept.push_back(in_.message);
      } else {
        const Wanted w = box.wanted.front();
        box.wanted.pop_front();
        if (!take(box, c, w)) return true;
      }
    }
    if (!c.batch) {
      c.kept = std::make_unique_for_overwrite<char[]>(
          static_cast<size_t>(in_.total));
      c.to = c.kept.get();
    }
    return coming_.emplace(in_.message, std::move(c)).second;
  }
  // Handles a header. False if it is damaged or makes no sense.
  bool begin_incoming() {
    if (in_.sum != in_.sum_now() || in_.bytes > kPiece ||
        (in_.kind != kMore && !begin_message()))
      return false;
    const auto it = coming_.find(in_.message);
    into_ = it == coming_.end() ? nullptr : &it->second;
    in_left_ = in_.bytes;
    return !into_ || in_left_ <= into_->frame.total - into_->got;
  }
  // Called when that many more bytes of the current piece have come.
  void filled(size_t bytes) {
    in_left_ -= static_cast<int64_t>(bytes);
    if (!into_) return;
    Coming& c = *into_;
    c.to += bytes;
    c.got += static_cast<int64_t>(bytes);
    if (c.got < c.frame.total) return;
    into_ = nullptr;
    if (c.frame.kind == kGoodbye)
      goodbye = c.frame.run;
    else if (c.frame.kind != kData)
      heard.push_back({c.frame, {c.kept.get(), static_cast<size_t>(c.got)}});
    else if (c.batch)
      c.batch->end();
    else
      return;  // no receive has taken it yet
    coming_.erase(c.frame.message);
  }
  // Handles the bytes in stage_, except for an incomplete header at their end.
  void unpack() {
    size_t at = 0;
    while (!ended) {
      const size_t n = std::min(staged_ - at, static_cast<size_t>(in_left_));
      if (into_ && n > 0) std::memcpy(into_->to, stage_ + at, n);
      filled(n);
      at += n;
      if (in_left_ > 0 || staged_ - at < sizeof(in_)) break;
      std::memcpy(&in_, stage_ + at, sizeof(in_));
      at += sizeof(in_);
      // After an invalid header, the start of the next one is unknown, so
      // nothing more is read. The other process can still be told.
      if (begin_incoming()) continue;
      ended = true;
      damage = fmt::format(
          "the header of a message is damaged: it says {} "
          "bytes of {}, and checksum {} instead of {}",
          in_.bytes, in_.total, checksum_text(in_.sum),
          checksum_text(in_.sum_now()));
    }
    std::memmove(stage_, stage_ + at, staged_ - at);
    staged_ -= at;
  }

  bool deaf_;  // nothing more can be sent
  int64_t run_ = 0;

  std::list<Sending> queue_;  // a piece of the first one is being sent
  uint32_t messages_ = 0;
  Frame head_;                            // the header of the piece being sent
  iovec out_[2]{};                        // the unsent rest of header and piece
  const std::unique_ptr<char[]> spare_ =  // see give_up()
      std::make_unique_for_overwrite<char[]>(kPiece);

  Frame in_;
  int64_t in_left_ = 0;     // bytes of the piece still to come
  Coming* into_ = nullptr;  // the piece's message; null: drops the piece
  std::map<uint32_t, Coming> coming_;  // by message number
  std::map<Key, Inbox> boxes_;
  char stage_[16 << 10];
  size_t staged_ = 0;
};

class TcpJob::Messages final : public PendingMessages {
 public:
  Messages(TcpJob& job, int64_t run, int64_t ranks_per_process)
      : job_(job), run_(run), per_process_(ranks_per_process) {}
  ~Messages() override { Messages::give_up(); }

  void send(const Channel& c, const void* data, int64_t bytes) override {
    batch_.begin();
    std::lock_guard lock(job_.mutex_);
    connection(c.to).add(
        {.frame = {.run = run_, .from = c.from, .to = c.to, .lane = c.lane},
         .data = static_cast<const char*>(data),
         .left = bytes,
         .batch = &batch_});
  }
  void receive(const Channel& c, void* data, int64_t bytes) override {
    batch_.begin();
    std::lock_guard lock(job_.mutex_);
    connection(c.from).receive({run_, c.from, c.to, c.lane},
                               {static_cast<char*>(data), bytes, &batch_});
  }
  bool done() override {
    if (batch_.left.load(std::memory_order_acquire) > 0) job_.listen();
    const bool all = batch_.left.load(std::memory_order_acquire) == 0;
    const int64_t most = batch_.refused;
    DT_CHECK(most == 0, "tcp",
             "a message of more than {} bytes came for a buffer of {}, which "
             "is an error in dtensor; report it",
             most, most);
    return all;
  }
  std::vector<int64_t> awaited() const override {
    std::vector<int64_t> ranks;
    std::lock_guard lock(job_.mutex_);
    for (const auto& c : job_.all_) c->awaited(batch_, ranks);
    return ranks;
  }
  void give_up() noexcept override {
    std::lock_guard lock(job_.mutex_);
    for (const auto& c : job_.all_) c->give_up(batch_);
    batch_.refused = 0;
    batch_.left = 0;
  }

 private:
  Connection& connection(int64_t rank) const {
    return *job_.all_[static_cast<size_t>(rank / per_process_)];
  }

  TcpJob& job_;
  const int64_t run_, per_process_;
  Batch batch_;
};

TcpJob::TcpJob(int process, std::vector<Socket> sockets)
    : ProcessJob(process, static_cast<int>(sockets.size())) {
  for (Socket& s : sockets)
    all_.push_back(std::make_unique<Connection>(std::move(s)));
}

TcpJob::~TcpJob() {
  try {
    leave();
  } catch (const std::exception&) {  // nobody is left to hear it
  }
}

void TcpJob::leave() {
  if (over_ != run_ || std::exchange(has_left_, true)) return;
  const bool fails = failed();
  Wait wait(
      *this, "leave the program",
      fails ? std::optional<std::chrono::milliseconds>(kEnd) : std::nullopt);
  say_all(kGoodbye, over_, "");
  const auto awaited = [this] {
    return left([](const Connection& c) {
      return !c.ended && (c.has_to_send() || !c.goodbye);
    });
  };
  try {
    // Another process that ends the job has printed why.
    for (; ended_with() == 0 && !awaited().empty();
         std::this_thread::sleep_for(100us))
      wait.look(awaited);
  } catch (const NoAnswer&) {
    if (!fails) throw;
  }
}

std::string TcpJob::launcher(int64_t processes) const {
  return fmt::format("torchrun --nproc-per-node {} (WORLD_SIZE={})", processes,
                     processes);
}

void TcpJob::open_run(int64_t run, int64_t ranks_per_process) {
  std::lock_guard lock(mutex_);
  run_ = run;
  per_process_ = ranks_per_process;
  for (const auto& c : all_) c->begin_run(run);
}

std::unique_ptr<PendingMessages> TcpJob::pending_messages() {
  return std::make_unique<Messages>(*this, run_, per_process_);
}

int TcpJob::lost_in_run() {
  std::lock_guard lock(mutex_);
  for (int p = 0; p < processes(); ++p) {
    const Connection& c = *all_[static_cast<size_t>(p)];
    const bool completed = c.goodbye && *c.goodbye >= run_;
    if (p != process() && c.ended && !completed) return p;
  }
  return -1;
}

std::string TcpJob::why_lost(int process) {
  std::lock_guard lock(mutex_);
  const Connection& c = *all_[static_cast<size_t>(process)];
  if (!c.damage.empty()) return c.damage + " (a message of its process)";
  return "the connection to its process has ended in the middle of the run; "
         "look for the error in its output, for a signal that killed it, or "
         "for a fault of the network";
}

void TcpJob::abort(int code) noexcept {
  try {
    say_all(kAbort, 0, std::to_string(code));
    const auto end = Clock::now() + kTell;
    while (!left([](const Connection& c) { return c.has_to_send(); }).empty() &&
           Clock::now() < end)
      std::this_thread::sleep_for(100us);
  } catch (...) {  // out of memory: the others notice this one's end
  }
}

void TcpJob::send(int64_t matter, int process, std::string text) {
  std::lock_guard lock(mutex_);
  all_[static_cast<size_t>(process)]->say(kText, matter, std::move(text));
}

bool TcpJob::lost(int process) {
  std::lock_guard lock(mutex_);
  const Connection& c = *all_[static_cast<size_t>(process)];
  return process != process_ && (c.ended || c.goodbye);
}

void TcpJob::say_all(uint32_t kind, int64_t matter, const std::string& text) {
  std::lock_guard lock(mutex_);
  for (const auto& c : all_) c->say(kind, matter, text);
}

template <class IsLeft>
std::vector<int> TcpJob::left(const IsLeft& is_left) {
  std::lock_guard lock(mutex_);
  progress();
  std::vector<int> all;
  for (int p = 0; p < processes(); ++p)
    if (is_left(*all_[static_cast<size_t>(p)])) all.push_back(p);
  return all;
}

// Ends this process as a launcher does: SIGTERM first, and _Exit after a while.
// Some ranks end by themselves when asked; others may not check in time.
void TcpJob::end_with(int code) {
  if (code_.exchange(code == 0 ? 1 : code) != 0) return;
  std::thread([code = code_.load()] {
    std::this_thread::sleep_for(kStop);
    std::fflush(stdout);
    std::_Exit(code);
  }).detach();
  kill(getpid(), SIGTERM);
}

// ---- Progress ----

void TcpJob::listen() {
  std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock) return;
  progress();
  if (!damage_.empty()) throw Error(std::exchange(damage_, ""));
}

// If several threads rest, one of them polls for all.
bool TcpJob::rest(std::chrono::microseconds most) {
  std::unique_lock looks(looks_, std::try_to_lock);
  if (!looks) {
    std::unique_lock lock(mutex_);
    ++resting_;
    looked_.wait_for(lock, most);
    --resting_;
    return true;
  }
  std::vector<pollfd> polled;
  {
    std::lock_guard lock(mutex_);
    watch(polled);
  }
  const timespec time{0, static_cast<long>(most / 1ns)};
  if (ppoll(polled.data(), polled.size(), &time, nullptr) > 0) {
    std::lock_guard lock(mutex_);
    progress();
  }
  // The data may be for a thread waiting above; such a thread must poll next.
  looks.unlock();
  if (resting_ > 0) looked_.notify_all();
  return true;
}

// Lists the sockets, and the events to wait for.
void TcpJob::watch(std::vector<pollfd>& polled) const {
  polled.clear();
  for (const auto& c : all_)
    polled.push_back(
        {c->ended ? -1 : c->socket.fd(),
         static_cast<short>(c->has_to_send() ? POLLIN | POLLOUT : POLLIN), 0});
}

void TcpJob::progress() {
  const auto damaged = [this](std::string text) {
    if (damage_.empty()) damage_ = std::move(text);
  };
  watch(polled_);
  if (poll(polled_.data(), polled_.size(), 0) <= 0) return;
  for (size_t i = 0; i < all_.size(); ++i) {
    Connection& c = *all_[i];
    const bool heard = polled_[i].revents & ~POLLOUT;
    if (heard) c.read();
    if (heard && !c.damage.empty())
      damaged(
          fmt::format("[tcp] from process {} to process {}, {}; look for "
                      "faulty memory or a faulty network between the two",
                      i, process(), c.damage));
    if (polled_[i].revents & POLLOUT) c.flush();
    for (Heard& h : std::exchange(c.heard, {}))
      if (h.frame.kind == kAbort)
        end_with(std::atoi(h.text.c_str()));
      else
        try {
          deliver(h.frame.run, {static_cast<int>(i), std::move(h.text)});
        } catch (const Error& e) {
          damaged(e.what());
        }
  }
}

}  // namespace dtensor
