#include "dtensor/comm/tcp/tcp_mesh.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <deque>
#include <optional>
#include <thread>

#include "dtensor/placement/error.h"

namespace dtensor {
namespace {

using namespace std::chrono_literals;
using Clock = Socket::Clock;

// The most bytes sent of one message before another one gets its turn.
constexpr int64_t kPiece = 128 << 10;
// Shorter pieces are read together with their neighbours, through the stage.
constexpr int64_t kDirect = 4096;
constexpr size_t kStage = 16 << 10;
// The most bytes of one connection before another one gets its turn.
constexpr int64_t kMostAtOnce = 512 << 10;
constexpr int64_t kMostText = 16 << 20;

enum Kind : uint32_t { kData = 1, kText, kGoodbye, kAbort };

// The header of each piece.
struct Frame {
  uint32_t kind = kData;
  int32_t lane = 0;
  int64_t run = 0;           // for a text: its matter
  int64_t from = 0, to = 0;  // ranks
  int64_t total = 0;         // bytes of the message
  uint32_t bytes = 0;        // in this piece
  uint32_t unused = 0;
};
static_assert(sizeof(Frame) == 48);

bool makes_sense(const Frame& f) {
  if (f.bytes > kPiece || f.total < f.bytes || f.total < 0) return false;
  if (f.kind == kData) return f.bytes > 0;
  return (f.kind == kText || f.kind == kGoodbye || f.kind == kAbort) &&
         f.total <= kMostText && (f.bytes > 0 || f.total == 0);
}

// An outgoing message. A text owns its bytes.
struct Sending {
  Frame frame;
  const char* data = nullptr;
  int64_t sent = 0;
  TcpBatch* batch = nullptr;
  std::string own = {};
  bool cut = false;  // its sender has given up
};
using Sent = std::unique_ptr<Sending>;

// An incoming message: kept here, or read into the buffer that waits for it.
struct Kept {
  std::unique_ptr<char[]> data;
  int64_t total, got = 0;
};
struct Wanted {
  char* data;
  int64_t most;
  TcpBatch* batch;
  int64_t total = 0, got = 0;
};
// The incoming messages of one channel. Messages are kept only if they arrive
// before a receive: while one is kept, no receive is waiting.
struct Inbox {
  std::deque<Kept> kept;
  std::deque<Wanted> wanted;
  bool dead = false;  // its receiver has given up

  bool has_part() const {
    return (!kept.empty() && kept.back().got < kept.back().total) ||
           (!wanted.empty() && wanted.front().got > 0);
  }
  void refuse_first() {
    wanted.front().batch->refused = wanted.front().most;
    wanted.front().batch->left.fetch_sub(1, std::memory_order_release);
    wanted.pop_front();
    dead = true;
  }
};

}  // namespace

// A connection, guarded by the mesh's mutex.
struct TcpMesh::Line {
  int process = 0;
  Socket socket;
  bool ended = false;              // nothing more arrives
  bool deaf = false;               // nothing more can be sent
  std::optional<int64_t> goodbye;  // the last run that the process completed

  // Outgoing: texts first, then the channels in turn.
  std::deque<Sent> texts;
  std::map<Key, std::deque<Sent>> channels;
  std::deque<Key> turns;  // channels with messages, except that of `now`
  std::vector<Key> dead;  // channels of which a message was cut
  Sent now;               // the message of which a piece is being sent
  Frame head;             // the header of that piece
  size_t head_left = 0;
  const char* piece = nullptr;
  int64_t piece_left = 0;
  std::vector<char> spare = std::vector<char>(kPiece);  // see give_up()

  // Incoming.
  Frame in;
  int64_t in_left = 0;   // bytes of the piece still to come
  Inbox* box = nullptr;  // where the piece goes; null: nowhere
  std::string text;
  std::map<Key, Inbox> boxes;
  char stage[kStage];
  size_t stage_at = 0, stage_end = 0;

  static Key key_of(const Frame& f) { return {f.run, f.from, f.to, f.lane}; }
  bool idle() const { return !now && texts.empty() && turns.empty(); }

  void add(Sent s) {
    const Key key = key_of(s->frame);
    const bool data = s->frame.kind == kData;
    if (deaf || (data && std::count(dead.begin(), dead.end(), key))) return;
    if (idle()) return begin(std::move(s));
    if (!data) return texts.push_back(std::move(s));
    std::deque<Sent>& all = channels[key];
    const bool has_turn = !all.empty() || is_now(key);
    all.push_back(std::move(s));
    if (!has_turn) turns.push_back(key);
  }
  bool is_now(const Key& key) const {
    return now && now->frame.kind == kData && key_of(now->frame) == key;
  }
  void begin(Sent s) {
    now = std::move(s);
    head = now->frame;
    piece_left = std::min(kPiece, head.total - now->sent);
    piece = now->data + now->sent;
    head.bytes = static_cast<uint32_t>(piece_left);
    head_left = sizeof(head);
    now->sent += piece_left;
  }
  // The current piece has been sent.
  void end_piece() {
    Sent s = std::move(now);
    const Key key = key_of(s->frame);
    const bool data = s->frame.kind == kData;
    if (s->sent == s->frame.total || s->cut) {
      // A message that was cut has no batch.
      if (s->batch) s->batch->left.fetch_sub(1, std::memory_order_release);
    } else if (data) {
      channels[key].push_front(std::move(s));
    } else {
      texts.push_front(std::move(s));
    }
    if (!data) return;
    const auto it = channels.find(key);
    if (it == channels.end()) return;
    if (it->second.empty())
      channels.erase(it);
    else
      turns.push_back(key);
  }
  bool begin_next() {
    if (!texts.empty()) {
      Sent s = std::move(texts.front());
      texts.pop_front();
      begin(std::move(s));
      return true;
    }
    if (turns.empty()) return false;
    std::deque<Sent>& all = channels[turns.front()];
    turns.pop_front();
    Sent s = std::move(all.front());
    all.pop_front();
    begin(std::move(s));
    return true;
  }

  // Sends as much as possible without waiting, up to kMostAtOnce.
  void flush() {
    for (int64_t some = 0;
         some < kMostAtOnce && !deaf && (now || begin_next());) {
      iovec parts[] = {
          {reinterpret_cast<char*>(&head) + sizeof(head) - head_left,
           head_left},
          {const_cast<char*>(piece), static_cast<size_t>(piece_left)}};
      msghdr message{};
      message.msg_iov = parts;
      message.msg_iovlen = 2;
      ssize_t n = sendmsg(socket.fd(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
      if (n < 0 && errno == EINTR) continue;
      if (n < 0 && errno == EAGAIN) return;
      if (n < 0) {
        // Bytes received earlier are still to be read.
        deaf = true;
        return;
      }
      some += n;
      const size_t of_head = std::min(head_left, static_cast<size_t>(n));
      head_left -= of_head;
      piece += n - static_cast<ssize_t>(of_head);
      piece_left -= n - static_cast<ssize_t>(of_head);
      if (head_left == 0 && piece_left == 0) end_piece();
    }
  }

  // The address for the next bytes of the piece; `bytes` is the most that will
  // be read.
  char* room(int64_t bytes, std::vector<char>& nowhere) {
    if (in.kind != kData) {
      text.resize(text.size() + static_cast<size_t>(bytes));
      return text.data() + text.size() - bytes;
    }
    if (!box) return nowhere.data();
    if (!box->kept.empty())
      return box->kept.back().data.get() + box->kept.back().got;
    return box->wanted.front().data + box->wanted.front().got;
  }
  void filled(int64_t bytes) {
    in_left -= bytes;
    if (in.kind != kData || !box) return;
    if (!box->kept.empty()) {
      box->kept.back().got += bytes;
      return;
    }
    Wanted& w = box->wanted.front();
    w.got += bytes;
    if (w.got < w.total) return;
    w.batch->left.fetch_sub(1, std::memory_order_release);
    box->wanted.pop_front();
  }
  // Handles a complete header. False if it makes no sense.
  bool open_piece(int64_t run) {
    if (!makes_sense(in)) return false;
    in_left = in.bytes;
    box = nullptr;
    if (in.kind != kData) return std::ssize(text) + in.bytes <= in.total;
    if (in.run < run) return true;
    Inbox& b = boxes[key_of(in)];
    if (b.dead) return true;
    if (!b.has_part()) {
      if (b.wanted.empty()) {
        b.kept.push_back({std::make_unique_for_overwrite<char[]>(
                              static_cast<size_t>(in.total)),
                          in.total});
      } else if (b.wanted.front().most < in.total) {
        b.refuse_first();
        return true;
      } else {
        b.wanted.front().total = in.total;
      }
    }
    const int64_t total =
        b.kept.empty() ? b.wanted.front().total : b.kept.back().total;
    const int64_t got =
        b.kept.empty() ? b.wanted.front().got : b.kept.back().got;
    if (total != in.total || total - got < in.bytes) return false;
    box = &b;
    return true;
  }
};

TcpMesh::TcpMesh(std::vector<Socket> sockets, Hears hears, Ends ends)
    : hears_(std::move(hears)), ends_(std::move(ends)), nowhere_(kPiece) {
  for (Socket& s : sockets) {
    lines_.push_back(std::make_unique<Line>());
    lines_.back()->process = static_cast<int>(lines_.size()) - 1;
    lines_.back()->ended = lines_.back()->deaf = !s;
    lines_.back()->socket = std::move(s);
  }
}

TcpMesh::~TcpMesh() = default;

// ---- Messages of ranks ----

void TcpMesh::send(int process, int64_t run, const Channel& c, const void* data,
                   int64_t bytes, TcpBatch& batch) {
  auto s = std::make_unique<Sending>();
  s->frame = {
      .lane = c.lane, .run = run, .from = c.from, .to = c.to, .total = bytes};
  s->data = static_cast<const char*>(data);
  s->batch = &batch;
  batch.left.fetch_add(1, std::memory_order_relaxed);
  std::lock_guard lock(mutex_);
  line(process).add(std::move(s));
  line(process).flush();
}

void TcpMesh::receive(int process, int64_t run, const Channel& c, void* data,
                      int64_t bytes, TcpBatch& batch) {
  Wanted w{static_cast<char*>(data), bytes, &batch};
  batch.left.fetch_add(1, std::memory_order_relaxed);
  std::lock_guard lock(mutex_);
  if (run < run_) return batch.never.push_back(c.from);
  Inbox& box = line(process).boxes[{run, c.from, c.to, c.lane}];
  if (box.dead) return batch.never.push_back(c.from);
  if (box.kept.empty()) {
    box.wanted.push_back(w);
    return;
  }
  Kept k = std::move(box.kept.front());
  box.kept.pop_front();
  if (k.total > bytes) {
    box.wanted.push_back(w);
    box.refuse_first();
    if (line(process).box == &box) line(process).box = nullptr;
    return;
  }
  std::memcpy(w.data, k.data.get(), static_cast<size_t>(k.got));
  w.total = k.total;
  w.got = k.got;
  if (k.got < k.total) {  // the rest is read straight into the buffer
    box.wanted.push_back(w);
    return;
  }
  batch.left.fetch_sub(1, std::memory_order_release);
}

void TcpMesh::give_up(TcpBatch& batch) noexcept {
  std::lock_guard lock(mutex_);
  for (const auto& l : lines_) {
    for (auto& [key, box] : l->boxes)
      if (std::erase_if(box.wanted, [&](const Wanted& w) {
            return w.batch == &batch;
          }) > 0) {
        box.dead = true;
        if (l->box == &box) l->box = nullptr;
      }
    const auto drop = [&](const Sent& s) {
      if (s->batch != &batch) return false;
      if (s->sent > 0) l->dead.push_back(Line::key_of(s->frame));
      return true;
    };
    for (auto it = l->channels.begin(); it != l->channels.end();) {
      std::erase_if(it->second, drop);
      if (it->second.empty() && !l->is_now(it->first)) {
        std::erase(l->turns, it->first);
        it = l->channels.erase(it);
      } else {
        ++it;
      }
    }
    // A piece that has begun must be completed, or the receiver could not parse
    // the rest: it is sent from a copy.
    if (!l->now || l->now->batch != &batch) continue;
    if (l->now->sent < l->now->frame.total)
      l->dead.push_back(Line::key_of(l->now->frame));
    l->now->batch = nullptr;
    l->now->cut = true;
    if (l->piece_left > 0)
      std::memcpy(l->spare.data(), l->piece,
                  static_cast<size_t>(l->piece_left));
    l->piece = l->spare.data();
  }
  batch.never.clear();
  batch.refused = 0;
  batch.left = 0;
}

std::vector<int64_t> TcpMesh::awaited(const TcpBatch& batch) const {
  std::vector<int64_t> ranks = batch.never;
  std::lock_guard lock(mutex_);
  for (const auto& l : lines_)
    for (const auto& [key, box] : l->boxes)
      for (const Wanted& w : box.wanted)
        if (w.batch == &batch) ranks.push_back(key.from);
  return ranks;
}

void TcpMesh::begin_run(int64_t run) {
  std::lock_guard lock(mutex_);
  run_ = run;
  for (const auto& l : lines_) {
    if (l->in.kind == kData && l->in.run < run) l->box = nullptr;
    std::erase_if(l->boxes,
                  [&](const auto& box) { return box.first.run < run; });
    std::erase_if(l->dead, [&](const Key& key) { return key.run < run; });
  }
}

// ---- Messages of processes ----

void TcpMesh::say_locked(int process, uint32_t kind, int64_t matter,
                         std::string_view text) {
  auto s = std::make_unique<Sending>();
  s->own = text.substr(0, static_cast<size_t>(kMostText));
  s->frame = {.kind = kind, .run = matter, .total = std::ssize(s->own)};
  s->data = s->own.data();
  line(process).add(std::move(s));
  line(process).flush();
}

void TcpMesh::tell(int process, int64_t matter, std::string_view text) {
  std::lock_guard lock(mutex_);
  say_locked(process, kText, matter, text);
}

bool TcpMesh::leaves(int process) const {
  std::lock_guard lock(mutex_);
  return line(process).ended || line(process).goodbye;
}

bool TcpMesh::lost_in(int process, int64_t run) const {
  std::lock_guard lock(mutex_);
  const Line& l = line(process);
  return l.ended && (!l.goodbye || *l.goodbye < run);
}

void TcpMesh::leave(int64_t run, Clock::time_point end) {
  {
    std::lock_guard lock(mutex_);
    for (const auto& l : lines_)
      if (!l->ended) say_locked(l->process, kGoodbye, run, "");
  }
  flush_until(end, true);
}

void TcpMesh::abort(int code, Clock::time_point end) noexcept {
  try {
    {
      std::lock_guard lock(mutex_);
      for (const auto& l : lines_)
        if (!l->ended) say_locked(l->process, kAbort, 0, std::to_string(code));
    }
    flush_until(end, false);
  } catch (...) {  // out of memory: they will notice that this process is gone
  }
}

void TcpMesh::flush_until(Clock::time_point end, bool goodbyes) {
  for (;; std::this_thread::sleep_for(100us)) {
    bool done = true;
    {
      std::lock_guard lock(mutex_);
      progress_locked();
      for (const auto& l : lines_)
        done = done && (l->ended ||
                        ((l->idle() || l->deaf) && (!goodbyes || l->goodbye)));
    }
    if (done || Clock::now() >= end) return;
  }
}

// ---- Progress ----

void TcpMesh::progress() {
  std::unique_lock lock(mutex_, std::try_to_lock);
  if (lock) progress_locked();
}

void TcpMesh::rest(std::chrono::microseconds most) {
  std::unique_lock looks(looks_, std::try_to_lock);
  if (!looks) {
    std::unique_lock lock(mutex_);
    ++resting_;
    looked_.wait_for(lock, most);
    --resting_;
    return;
  }
  std::vector<pollfd> lines;
  {
    std::lock_guard lock(mutex_);
    watch(lines);
  }
  const timespec time{0, static_cast<long>(most / 1ns)};
  if (ppoll(lines.data(), lines.size(), &time, nullptr) > 0) {
    std::lock_guard lock(mutex_);
    progress_locked();
  }
  // The data may be for the resting threads, and one of them polls next.
  looks.unlock();
  if (resting_ > 0) looked_.notify_all();
}

// The sockets and the events to wait for.
void TcpMesh::watch(std::vector<pollfd>& lines) const {
  lines.clear();
  for (const auto& l : lines_) {
    const bool out = !l->deaf && !l->idle();
    lines.push_back({l->ended ? -1 : l->socket.fd(),
                     static_cast<short>(out ? POLLIN | POLLOUT : POLLIN), 0});
  }
}

void TcpMesh::progress_locked() {
  watch(polled_);
  if (poll(polled_.data(), polled_.size(), 0) <= 0) return;
  for (size_t i = 0; i < lines_.size(); ++i) {
    if (polled_[i].revents & ~POLLOUT) read(*lines_[i]);
    if (polled_[i].revents & POLLOUT) lines_[i]->flush();
  }
}

void TcpMesh::read(Line& l) {
  for (int64_t some = 0; some < kMostAtOnce && !l.ended;) {
    // Read straight to the destination if the rest of the piece is long enough
    // to be worth a system call.
    const bool direct = l.stage_at == l.stage_end && l.in_left >= kDirect;
    const int64_t most = direct ? l.in_left : static_cast<int64_t>(kStage);
    char* to = direct ? l.room(most, nowhere_) : l.stage;
    ssize_t n = 0;
    if (direct) {
      n = recv(l.socket.fd(), to, static_cast<size_t>(most), MSG_DONTWAIT);
      // room() made the text longer by all of `most`.
      if (l.in.kind != kData)
        l.text.resize(l.text.size() -
                      static_cast<size_t>(most - std::max<ssize_t>(n, 0)));
      if (n > 0) l.filled(n);
      if (n > 0 && l.in_left == 0) close_piece(l);
    } else {
      n = recv(l.socket.fd(), l.stage + l.stage_end, kStage - l.stage_end,
               MSG_DONTWAIT);
      if (n > 0) l.stage_end += static_cast<size_t>(n);
      if (n > 0) unpack(l);
    }
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EAGAIN) return;
    if (n <= 0) l.ended = l.deaf = true;
    some += n;
    if (n < most) return;
  }
}

// Handles the contents of the stage: the rest of a piece, and further pieces.
void TcpMesh::unpack(Line& l) {
  while (!l.ended) {
    const auto there = static_cast<int64_t>(l.stage_end - l.stage_at);
    if (l.in_left > 0) {
      const int64_t n = std::min(there, l.in_left);
      if (n == 0) break;
      std::memcpy(l.room(n, nowhere_), l.stage + l.stage_at,
                  static_cast<size_t>(n));
      l.stage_at += static_cast<size_t>(n);
      l.filled(n);
      if (l.in_left == 0) close_piece(l);
      continue;
    }
    if (there < static_cast<int64_t>(sizeof(Frame))) break;
    std::memcpy(&l.in, l.stage + l.stage_at, sizeof(Frame));
    l.stage_at += sizeof(Frame);
    // After an invalid header, the start of the next one is unknown.
    if (!l.open_piece(run_)) l.ended = l.deaf = true;
    if (l.in_left == 0) close_piece(l);
  }
  std::memmove(l.stage, l.stage + l.stage_at, l.stage_end - l.stage_at);
  l.stage_end -= l.stage_at;
  l.stage_at = 0;
}

void TcpMesh::close_piece(Line& l) {
  l.box = nullptr;
  if (l.ended || l.in.kind == kData || std::ssize(l.text) < l.in.total) return;
  const std::string text = std::exchange(l.text, {});
  if (l.in.kind == kText) hears_(l.process, l.in.run, text);
  if (l.in.kind == kGoodbye) l.goodbye = l.in.run;
  if (l.in.kind == kAbort) ends_(std::atoi(text.c_str()));
}

}  // namespace dtensor
