// SPDX-License-Identifier: Apache-2.0
#include "dtensor/program/explore/http_server.h"

// Debian's build defines these, and the layout of the classes depends on them.
#define CPPHTTPLIB_OPENSSL_SUPPORT
#define CPPHTTPLIB_ZLIB_SUPPORT
#define CPPHTTPLIB_BROTLI_SUPPORT
#include <arpa/inet.h>
#include <httplib.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <list>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <thread>
#include <utility>

#include "dtensor/placement/error.h"

namespace dtensor::explore {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr size_t kMostBytes = 32 << 10;  // of a request's head
constexpr int kMostRequests = 1000;      // of a connection
constexpr size_t kSmallBody = 64 << 10;  // the longest that takes no BodyRoom
// The longest times for receiving a request, for the next request to begin, and
// without progress of an answer.
constexpr milliseconds kRequestTime{5000}, kIdleTime{30000},
    kStalledTime{10000};
// A connection that has waited longer for its client may be ended for others.
constexpr milliseconds kGrace{250};
// How long drain() reads: normally, and after a body was refused.
constexpr milliseconds kDrainTime{100}, kRefusedTime{2000};
constexpr int kBacklog = 1024;

bool wait_for(int fd, short events, Clock::time_point end) {
  while (true) {
    const auto left =
        std::chrono::duration_cast<milliseconds>(end - Clock::now()).count();
    if (left <= 0) return false;
    pollfd p{fd, events, 0};
    const int n = poll(&p, 1, static_cast<int>(left));
    if (n > 0) return true;
    if (n < 0 && errno != EINTR) return false;
  }
}

// Returns the lines of a request's head that httplib has to read. It would
// spend time on the other lines: it matches Range with a recursive regular
// expression, repeats the answer for each range, and compresses it slowly.
std::string lines_read(std::string_view head) {
  std::string kept;
  while (!head.empty()) {
    const std::string_view line = head.substr(0, head.find("\r\n") + 2);
    head.remove_prefix(line.size());
    const auto is = [&](std::string_view name) {
      return line.size() > name.size() && line[name.size()] == ':' &&
             strncasecmp(line.data(), name.data(), name.size()) == 0;
    };
    if (kept.empty() || line.size() == 2 || is("Host") ||
        is("Sec-Fetch-Site") || is("Origin") || is("Authorization"))
      kept += line;
  }
  return kept;
}

// Whether proxies read the lines of a request's head as this server does. A
// line feed alone, a space before the colon, a header over two lines or an
// empty length may hide a body from only one of the two (RFC 9112, 5).
bool is_strict(std::string_view head) {
  const auto is = [](std::string_view line, std::string_view name) {
    return line.size() == name.size() &&
           strncasecmp(line.data(), name.data(), name.size()) == 0;
  };
  for (bool is_first = true; head.size() > 2; is_first = false) {
    const std::string_view line = head.substr(0, head.find("\r\n"));
    head.remove_prefix(line.size() + 2);
    if (line.find_first_of(std::string_view("\r\n\0", 3)) != line.npos)
      return false;
    if (is_first) continue;
    const size_t colon = line.find(':');
    if (colon == line.npos || colon == 0 || line.find_first_of(" \t") < colon)
      return false;
    if (line.find_first_not_of(" \t", colon + 1) == line.npos &&
        (is(line.substr(0, colon), "Content-Length") ||
         is(line.substr(0, colon), "Transfer-Encoding")))
      return false;
  }
  return true;
}

// The value of a header in a request's head; "" if the header is missing. If
// the header is repeated, its values are joined by ", " (RFC 9110, 5.3).
std::string value_of(std::string_view head, std::string_view name) {
  std::string value;
  while (!head.empty()) {
    std::string_view line = head.substr(0, head.find("\r\n"));
    head.remove_prefix(std::min(line.size() + 2, head.size()));
    if (line.size() <= name.size() || line[name.size()] != ':' ||
        strncasecmp(line.data(), name.data(), name.size()) != 0)
      continue;
    line.remove_prefix(name.size() + 1);
    const size_t first = line.find_first_not_of(" \t");
    if (first == line.npos) continue;
    if (!value.empty()) value += ", ";
    value += line.substr(first, line.find_last_not_of(" \t") + 1 - first);
  }
  return value;
}

std::string error_json(std::string_view sentence) {
  return nlohmann::json{{"error", sentence}}.dump();
}

char to_lower(char c) { return 'A' <= c && c <= 'Z' ? c + ('a' - 'A') : c; }
std::string to_lower(std::string text) {
  for (char& c : text) c = to_lower(c);
  return text;
}

// How many more bytes of large bodies all connections together may hold.
using BodyRoom = std::atomic<int64_t>;

// A connection of a client, which sends one request after the other.
class Connection final : public httplib::Stream {
 public:
  Connection(int fd, size_t most_body, BodyRoom& room)
      : fd_(fd), most_body_(most_body), room_(room) {}
  ~Connection() override { hold(0); }

  // Waits for the next request. Returns false if none comes.
  bool receive() {
    is_routed = false;
    refused = 0;
    body.clear();
    hold(0);
    at_ = 0;
    if (!set_busy(false)) return false;
    if (requests_ > 0 && received_.empty() &&
        !receive_some(Clock::now() + kIdleTime))
      return false;
    const auto end = Clock::now() + kRequestTime;
    size_t length = 0;
    while ((length = received_.find("\r\n\r\n")) == received_.npos)
      if (received_.size() > kMostBytes || !receive_some(end)) return false;
    head_ = take(length + 4);
    if (!receive_body(end)) return false;
    // An idle connection holds no memory.
    if (received_.empty()) received_ = {};
    is_last = requests_ + 1 == kMostRequests || refused || ends_here();
    head_ = lines_read(head_);
    if (!set_busy(true)) return false;
    ++requests_;
    return true;
  }
  ssize_t read(char* to, size_t n) override {
    n = std::min(n, head_.size() - at_);
    std::copy_n(head_.data() + at_, n, to);
    at_ += n;
    return static_cast<ssize_t>(n);
  }
  ssize_t write(const char* text, size_t n) override {
    size_t sent = 0;
    if (!set_busy(false)) return -1;
    while (sent < n) {
      if (!wait_for(fd_, POLLOUT, Clock::now() + kStalledTime)) return -1;
      const ssize_t more =
          send(fd_, text + sent, n - sent, MSG_NOSIGNAL | MSG_DONTWAIT);
      if (more < 0 && errno != EAGAIN && errno != EINTR) return -1;
      sent += static_cast<size_t>(std::max<ssize_t>(more, 0));
    }
    return static_cast<ssize_t>(n);
  }
  bool is_readable() const override { return true; }
  bool is_writable() const override { return true; }
  void get_remote_ip_and_port(std::string&, int&) const override {}
  void get_local_ip_and_port(std::string&, int&) const override {}
  socket_t socket() const override { return fd_; }

  std::string body;        // of the request
  int refused = 0;         // the status for a body that is not read
  bool is_last = false;    // the connection ends with the request
  bool is_routed = false;  // httplib could read the request
  std::shared_ptr<void> held;

  // Notes whether this thread works (`busy`) or waits for the client from now
  // on. Returns false if another thread has ended the connection.
  bool set_busy(bool busy) {
    const std::lock_guard lock(mutex_);
    if (busy)
      waits_since_.reset();
    else
      waits_since_ = Clock::now();
    return !ends_;
  }
  // The time since which the connection has waited for its client, if it does.
  std::optional<Clock::time_point> waits_since() const {
    const std::lock_guard lock(mutex_);
    return ends_ ? std::nullopt : waits_since_;
  }
  // Ends the connection if it has waited for its client since then. Before the
  // first request, it leaves the sending side open for turn_away().
  bool end_if_waiting_since(Clock::time_point since) {
    const std::lock_guard lock(mutex_);
    if (ends_ || waits_since_ != since) return false;
    ends_ = true;
    shutdown(fd_, requests_ == 0 ? SHUT_RD : SHUT_RDWR);
    return true;
  }
  bool ends() const {
    const std::lock_guard lock(mutex_);
    return ends_;
  }

  // Gives back to room_ what was reserved for the body beyond so many bytes.
  void hold(int64_t bytes) {
    if (reserved_ > bytes) room_ += std::exchange(reserved_, bytes) - bytes;
  }

  // Tells the client to come back if the connection was ended before a request.
  void turn_away() {
    if (!ends() || requests_ > 0) return;
    const std::string sentence =
        error_json("too many connections are open; ask again later");
    const std::string text = fmt::format(
        "HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json"
        "\r\nContent-Length: {}\r\nConnection: close\r\nRetry-After: 1"
        "\r\n\r\n{}",
        sentence.size(), sentence);
    send(fd_, text.data(), text.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  }
  // Reads what the client still sends: unread bytes would turn close() into a
  // reset, which can overtake the answer. A client whose body was refused, or
  // that was turned away, is still sending, so drain() waits for its bytes.
  void drain() {
    shutdown(fd_, SHUT_WR);
    std::array<char, 4096> some;
    const bool sends = refused || (ends() && requests_ == 0);
    const auto end = Clock::now() + (refused ? kRefusedTime : kDrainTime);
    while (Clock::now() < end && (!sends || wait_for(fd_, POLLIN, end)) &&
           recv(fd_, some.data(), some.size(), MSG_DONTWAIT) > 0)
      continue;
  }

 private:
  // Removes the first bytes from received_ and returns them.
  std::string take(size_t bytes) {
    std::string first = received_.substr(0, bytes);
    received_.erase(0, bytes);
    return first;
  }
  bool receive_some(Clock::time_point end) {
    std::array<char, 16384> some;
    if (!wait_for(fd_, POLLIN, end)) return false;
    const ssize_t got = recv(fd_, some.data(), some.size(), MSG_DONTWAIT);
    if (got <= 0) return false;
    received_.append(some.data(), static_cast<size_t>(got));
    return true;
  }
  bool ends_here() const {
    const std::string wish = to_lower(value_of(head_, "Connection"));
    const std::string_view line =
        std::string_view(head_).substr(0, head_.find("\r\n"));
    return wish.find("close") != wish.npos || !line.ends_with("HTTP/1.1");
  }
  bool refuse(int status) {
    refused = status;
    return true;
  }
  // Reserves room for a body of so many bytes; false if room_ has less left.
  bool reserve(size_t bytes) {
    if (reserved_ > 0 || bytes <= kSmallBody) return true;
    reserved_ = static_cast<int64_t>(bytes);
    if ((room_ -= reserved_) >= 0) return true;
    hold(0);
    return false;
  }
  bool receive_body(Clock::time_point end) {
    if (!is_strict(head_)) return refuse(400);
    const std::string coding = value_of(head_, "Transfer-Encoding"),
                      length = value_of(head_, "Content-Length");
    if (coding.empty() && length.empty()) return true;
    if (!coding.empty() && strcasecmp(coding.c_str(), "chunked") != 0)
      return refuse(501);
    // A proxy may believe one of the two lengths, and this server the other.
    if (!coding.empty() && !length.empty()) return refuse(400);
    const size_t sign = length.starts_with('-');
    if (length.find_first_not_of("0123456789", sign) != length.npos ||
        length == "-")
      return refuse(400);
    if (sign == 1 || length.size() >= 18) return refuse(413);
    const size_t bytes = length.empty() ? 0 : std::stoull(length);
    if (bytes > most_body_) return refuse(413);
    if (!reserve(bytes)) return refuse(503);
    constexpr std::string_view kGoOn = "HTTP/1.1 100 Continue\r\n\r\n";
    if (!value_of(head_, "Expect").empty() && received_.empty() &&
        (bytes > 0 || !coding.empty()))
      write(kGoOn.data(), kGoOn.size());
    if (!coding.empty()) return receive_chunks(end);
    while (received_.size() < bytes)
      if (!receive_some(end)) return false;
    if (received_.size() == bytes)
      body = std::exchange(received_, {});
    else
      body = take(bytes);
    return true;
  }
  // Reads a body in chunks (RFC 9112, 7.1): each begins with its size in hex,
  // and the last is empty. Ignores what follows that one, up to an empty line.
  bool receive_chunks(Clock::time_point end) {
    while (true) {
      std::string line;
      if (!receive_line(line, end)) return refused != 0;
      line.resize(std::min(line.size(), line.find_first_of("; \t")));
      if (line.empty() ||
          line.find_first_not_of("0123456789abcdefABCDEF") != line.npos)
        return refuse(400);
      const size_t bytes =
          line.size() > 15 ? SIZE_MAX : std::stoull(line, nullptr, 16);
      if (bytes > most_body_ - body.size()) return refuse(413);
      if (bytes == 0) break;
      if (body.size() + bytes > kSmallBody && !reserve(most_body_))
        return refuse(503);
      while (received_.size() < bytes + 2)
        if (!receive_some(end)) return false;
      body += take(bytes);
      if (take(2) != "\r\n") return refuse(400);
    }
    size_t more = 0;
    for (std::string line = "x"; !line.empty(); more += line.size())
      if (more > kMostBytes)
        return refuse(400);
      else if (!receive_line(line, end))
        return refused != 0;
    hold(std::ssize(body));
    return true;
  }
  // Reads a line without its end. False if none comes, or it is too long.
  bool receive_line(std::string& line, Clock::time_point end) {
    size_t length = 0;
    while ((length = received_.find("\r\n")) == received_.npos) {
      if (received_.size() > kMostBytes) {
        refuse(400);
        return false;
      }
      if (!receive_some(end)) return false;
    }
    line = take(length + 2);
    line.resize(length);
    return true;
  }

  const int fd_;
  const size_t most_body_;
  BodyRoom& room_;
  int64_t reserved_ = 0;  // of room_
  std::string received_;  // what no request has taken yet
  std::string head_;
  size_t at_ = 0;  // the number of bytes of head_ that httplib has read
  std::atomic<int> requests_{0};
  mutable std::mutex mutex_;
  std::optional<Clock::time_point> waits_since_ = Clock::now();
  bool ends_ = false;  // Connections has ended it
};

// The connection that this thread serves.
thread_local Connection* mine = nullptr;

// The connections that are open, the oldest first.
class Connections {
 public:
  explicit Connections(size_t most) : most_(most) {}
  // Called before a connection is opened. Waits for room, so that every open
  // connection has a thread.
  void add() {
    std::unique_lock lock(mutex_);
    ++count_;
    while (!closed_ && count_ > most_ + ending_) {
      end_oldest();
      changed_.wait_for(lock, milliseconds(10));
    }
  }
  void opened(Connection* c) {
    const std::lock_guard lock(mutex_);
    open_.push_back(c);
    if (closed_) shutdown(c->socket(), SHUT_RDWR);
  }
  void closed(Connection* c) {
    const std::lock_guard lock(mutex_);
    open_.remove(c);
    --count_;
    ending_ -= c->ends();
    changed_.notify_all();
  }
  void close_all() {
    const std::lock_guard lock(mutex_);
    closed_ = true;
    for (Connection* c : open_) shutdown(c->socket(), SHUT_RDWR);
    changed_.notify_all();
  }

 private:
  // Ends the connection that waits longest for its client, at least for kGrace.
  void end_oldest() {
    Connection* oldest = nullptr;
    Clock::time_point first = Clock::now() - kGrace;
    for (Connection* c : open_)
      if (const auto since = c->waits_since(); since && *since <= first) {
        oldest = c;
        first = *since;
      }
    if (oldest) ending_ += oldest->end_if_waiting_since(first);
  }

  const size_t most_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::list<Connection*> open_;
  size_t count_ = 0;   // includes connections that no thread serves yet
  size_t ending_ = 0;  // how many of open_ end_oldest() has ended
  bool closed_ = false;
};

class Threads final : public httplib::ThreadPool {
 public:
  Threads(Connections& all, size_t most) : ThreadPool(most), all_(all) {}
  void enqueue(std::function<void()> serve) override {
    all_.add();
    ThreadPool::enqueue(std::move(serve));
  }

 private:
  Connections& all_;
};

// The name of a Host header, without its port.
std::string name_of(const std::string& host) {
  const size_t colon = host.rfind(':');
  const bool is_port =
      colon != host.npos && host.find(']', colon) == host.npos &&
      host.find_first_not_of("0123456789", colon + 1) == host.npos;
  return to_lower(is_port ? host.substr(0, colon) : host);
}

bool is_address(const std::string& name) {
  std::array<unsigned char, 16> address;
  if (name.size() > 1 && name.front() == '[' && name.back() == ']')
    return inet_pton(AF_INET6, name.substr(1, name.size() - 2).c_str(),
                     address.data()) == 1;
  return inet_pton(AF_INET, name.c_str(), address.data()) == 1;
}

// See HttpRequest::is_own. Browsers leave out Sec-Fetch-Site if the address is
// neither https nor this machine's; then Origin names the page's server.
bool is_own(const httplib::Request& r) {
  const std::string site = r.get_header_value("Sec-Fetch-Site"),
                    origin = r.get_header_value("Origin"),
                    host = r.get_header_value("Host");
  if (!site.empty()) return site == "same-origin" || site == "none";
  return origin.empty() || origin == "http://" + host ||
         origin == "https://" + host;
}

}  // namespace

class HttpServer::State final : public httplib::Server {
 public:
  State(const std::string& host, int port, HttpServer::Handler handler,
        HttpOptions options)
      : host_(host),
        handler_(std::move(handler)),
        options_(std::move(options)),
        connections_(options_.connections),
        room_(static_cast<int64_t>(options_.bodies)) {
    names_ = {"localhost", to_lower(host)};
    for (const std::string& name : options_.hosts)
      names_.insert(to_lower(name));
    // Replace httplib's options, which set SO_REUSEPORT: with it, a second
    // server at this port would get a part of the connections.
    set_socket_options([](socket_t s) {
      const int yes = 1;
      setsockopt(s, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    });
    new_task_queue = [this] {
      return new Threads(connections_, options_.connections);
    };
    set_tcp_nodelay(true);
    set_keep_alive_timeout(kIdleTime / std::chrono::seconds(1));
    set_keep_alive_max_count(kMostRequests);
    set_default_headers({{"Cache-Control", "no-store"},
                         {"Content-Security-Policy", "frame-ancestors 'none'"},
                         {"Cross-Origin-Resource-Policy", "same-origin"},
                         {"Referrer-Policy", "no-referrer"},
                         {"X-Content-Type-Options", "nosniff"},
                         {"X-Frame-Options", "DENY"}});
    set_pre_routing_handler(
        [this](const httplib::Request& request, httplib::Response& response) {
          answer(request, response);
          return HandlerResponse::Handled;
        });
    port_ = port == 0 ? bind_to_any_port(host)
                      : (bind_to_port(host, port) ? port : -1);
    DT_CHECK(port_ > 0, "http", "cannot listen at {}:{}; choose another {}",
             host, port, port ? "port or address" : "address");
    ::listen(svr_sock_, kBacklog);  // more than httplib's
    thread_ = std::thread([this] { accept_all(); });
    while (!is_running()) std::this_thread::sleep_for(milliseconds(1));
  }
  ~State() override {
    stopping_ = true;
    connections_.close_all();
    stop();
    thread_.join();
  }
  int port() const { return port_; }

 private:
  // Listens again whenever httplib gives up: it does so when it cannot accept a
  // connection, for example for lack of memory.
  void accept_all() {
    while (!listen_after_bind() && !stopping_) {
      std::this_thread::sleep_for(milliseconds(100));
      if (bind_to_port(host_, port_)) ::listen(svr_sock_, kBacklog);
    }
  }

  bool process_and_close_socket(socket_t fd) override {
    Connection c(fd, options_.body, room_);
    mine = &c;
    connections_.opened(&c);
    bool closed = false;
    while (c.receive() && process_request(c, c.is_last, closed, nullptr) &&
           c.is_routed && !c.is_last)
      c.held.reset();
    c.held.reset();
    c.turn_away();
    c.drain();
    connections_.closed(&c);
    close(fd);
    return true;
  }

  void answer(const httplib::Request& request, httplib::Response& response) {
    mine->is_routed = true;
    const auto refuse = [&](int status, std::string_view sentence) {
      response.status = status;
      response.set_content(error_json(sentence), "application/json");
    };
    if (request.method != "GET" && options_.body == 0) {
      response.set_header("Allow", "GET");
      return refuse(405, "this server only answers GET");
    }
    if (mine->refused == 400)
      return refuse(400,
                    "malformed: the Content-Length is not a number or has a "
                    "Transfer-Encoding beside it, or a chunk is wrong, or a "
                    "line of the head is not NAME: VALUE");
    if (mine->refused == 501)
      return refuse(501,
                    "the Transfer-Encoding is not chunked; send the body as "
                    "it is");
    if (mine->refused == 503) {
      response.set_header("Retry-After", "1");
      return refuse(503,
                    "too many large bodies are being read; ask again "
                    "later");
    }
    if (mine->refused == 413)
      return refuse(
          413, fmt::format("the body must have 0 to {} bytes", options_.body));
    if (request.get_header_value_count("Host") != 1)
      return refuse(403, "a request has one Host header; send exactly one");
    const std::string name = name_of(request.get_header_value("Host"));
    if (!names_.contains(name) && !is_address(name))
      return refuse(
          403, fmt::format(
                   "the Host header names \"{}\", but this server answers only "
                   "to IP addresses and {}; use one of these in the URL{}",
                   name, fmt::join(names_, ", "),
                   options_.host_flag.empty()
                       ? ""
                       : fmt::format(", or start it with {} {}",
                                     options_.host_flag, name)));
    HttpRequest r;
    r.method = request.method;
    r.path = request.path;
    r.authorization = request.get_header_value("Authorization");
    r.body = std::move(mine->body);
    r.socket = mine->socket();
    if (const size_t at = request.target.find('?'); at != std::string::npos)
      r.query = request.target.substr(at + 1);
    r.is_own = is_own(request);
    HttpAnswer a = handler_(std::move(r));
    mine->hold(0);  // the handler has taken the body
    response.status = a.status;
    mine->held = std::move(a.held);
    for (const auto& [name, value] : a.headers)
      response.set_header(name, value);
    if (a.stream) {
      response.set_chunked_content_provider(
          a.type, [stream = std::move(a.stream), c = mine](
                      size_t, httplib::DataSink& sink) {
            // Now the connection waits for the handler, not for its client.
            bool reads = c->set_busy(true);
            stream([&](std::string_view text) {
              reads = reads && sink.write(text.data(), text.size()) &&
                      c->set_busy(true);
              return reads;
            });
            if (reads) sink.done();
            return reads;
          });
      return;
    }
    response.set_header("Content-Type", a.type);
    response.body = std::move(a.body);
  }

  const std::string host_;
  const HttpServer::Handler handler_;
  const HttpOptions options_;
  std::set<std::string> names_;  // allowed in a Host header, besides addresses
  Connections connections_;
  BodyRoom room_;
  std::atomic<bool> stopping_{false};
  int port_ = -1;
  std::thread thread_;
};

HttpServer::HttpServer(const std::string& host, int port, Handler handler,
                       HttpOptions options)
    : state_(std::make_unique<State>(host, port, std::move(handler),
                                     std::move(options))) {}
HttpServer::~HttpServer() = default;
int HttpServer::port() const { return state_->port(); }

}  // namespace dtensor::explore
