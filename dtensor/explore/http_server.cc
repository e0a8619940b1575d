// SPDX-License-Identifier: Apache-2.0
#include "dtensor/explore/http_server.h"

// As Debian's library was compiled; the layout of its classes depends on it.
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
#include <list>
#include <mutex>
#include <nlohmann/json.hpp>
#include <thread>

#include "dtensor/placement/error.h"

namespace dtensor::explore {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr size_t kMostBytes = 32 << 10;  // of a request's head
constexpr milliseconds kRequestTime{5000}, kStalledTime{10000};
constexpr int kBacklog = 128;

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

// The lines of a request's head that this server reads. The rest are
// dropped, since httplib would spend time on them: it matches Range with a
// recursive regular expression, repeats the answer for each range, and
// compresses it slowly.
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

// The value of a header of a request's head; "" if it has none.
std::string value_of(std::string_view head, std::string_view name) {
  while (!head.empty()) {
    std::string_view line = head.substr(0, head.find("\r\n"));
    head.remove_prefix(std::min(line.size() + 2, head.size()));
    if (line.size() <= name.size() || line[name.size()] != ':' ||
        strncasecmp(line.data(), name.data(), name.size()) != 0)
      continue;
    line.remove_prefix(name.size() + 1);
    const size_t first = line.find_first_not_of(" \t");
    if (first == line.npos) return "";
    return std::string(
        line.substr(first, line.find_last_not_of(" \t") + 1 - first));
  }
  return "";
}

// A connection, which has one request.
class Connection final : public httplib::Stream {
 public:
  Connection(int fd, size_t most_body) : fd_(fd), most_body_(most_body) {}

  // Waits for the request; false if it does not come.
  bool receive() {
    const auto end = Clock::now() + kRequestTime;
    size_t length = head_.npos;
    for (; length == head_.npos; length = head_.find("\r\n\r\n"))
      if (head_.size() > kMostBytes || !receive_some(head_, end)) return false;
    length += 4;
    body = head_.substr(length);
    head_.resize(length);
    if (most_body_ > 0 && !receive_body(end)) return false;
    head_ = lines_read(head_);
    waits = false;
    return true;
  }
  ssize_t read(char* to, size_t n) override {
    n = std::min(n, head_.size() - at_);
    std::copy_n(head_.data() + at_, n, to);
    at_ += n;
    return static_cast<ssize_t>(n);
  }
  ssize_t write(const char* text, size_t n) override {
    waits = true;
    size_t sent = 0;
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

  std::string body;               // of the request
  int refused = 0;                // the status for a body that is not read
  std::atomic<bool> waits{true};  // for the client
  bool ends = false;              // Connections has ended it
  std::shared_ptr<void> held;

  // Unread bytes would turn close() into a reset, which can overtake the
  // answer. A client that is told that its body is too long is still sending
  // it.
  void drain() {
    shutdown(fd_, SHUT_WR);
    std::array<char, 4096> some;
    const auto end = Clock::now() + milliseconds(refused ? 2000 : 200);
    while (Clock::now() < end && (!refused || wait_for(fd_, POLLIN, end)) &&
           recv(fd_, some.data(), some.size(), MSG_DONTWAIT) > 0)
      continue;
  }

 private:
  bool receive_some(std::string& to, Clock::time_point end) {
    std::array<char, 4096> some;
    if (!wait_for(fd_, POLLIN, end)) return false;
    const ssize_t got = recv(fd_, some.data(), some.size(), MSG_DONTWAIT);
    if (got <= 0) return false;
    to.append(some.data(), static_cast<size_t>(got));
    return true;
  }
  bool receive_body(Clock::time_point end) {
    const auto refuse = [&](int status) {
      refused = status;
      return true;
    };
    if (!value_of(head_, "Transfer-Encoding").empty()) return refuse(411);
    const std::string length = value_of(head_, "Content-Length");
    const size_t sign = length.starts_with('-');
    if (length.find_first_not_of("0123456789", sign) != length.npos ||
        length == "-")
      return refuse(400);
    if (sign == 1 || length.size() >= 18) return refuse(413);
    const size_t bytes = length.empty() ? 0 : std::stoull(length);
    if (bytes > most_body_) return refuse(413);
    constexpr std::string_view kGoOn = "HTTP/1.1 100 Continue\r\n\r\n";
    if (!value_of(head_, "Expect").empty() && body.size() < bytes)
      write(kGoOn.data(), kGoOn.size());
    while (body.size() < bytes)
      if (!receive_some(body, end)) return false;
    body.resize(bytes);
    return true;
  }

  const int fd_;
  const size_t most_body_;
  std::string head_;
  size_t at_ = 0;  // what httplib has read of it
};

// The connection that this thread serves.
thread_local Connection* mine = nullptr;

// The connections that are open, the oldest first.
class Connections {
 public:
  explicit Connections(size_t most) : most_(most) {}
  // Before one more is opened, by a thread that may be busy until then.
  void add() {
    const std::lock_guard lock(mutex_);
    ++count_;
    make_room();
  }
  void opened(Connection* c) {
    const std::lock_guard lock(mutex_);
    open_.push_back(c);
    if (closed_) shutdown(c->socket(), SHUT_RDWR);
    make_room();
  }
  void closed(Connection* c) {
    const std::lock_guard lock(mutex_);
    open_.remove(c);
    --count_;
    ending_ -= c->ends;
  }
  void close_all() {
    const std::lock_guard lock(mutex_);
    closed_ = true;
    for (Connection* c : open_) shutdown(c->socket(), SHUT_RDWR);
  }

 private:
  // Ends the oldest that wait for their clients, so that no thread is taken by
  // one while others have none.
  void make_room() {
    for (Connection* c : open_) {
      if (count_ <= most_ + ending_) return;
      if (c->ends || !c->waits) continue;
      c->ends = true;
      ++ending_;
      shutdown(c->socket(), SHUT_RDWR);
    }
  }

  const size_t most_;
  std::mutex mutex_;
  std::list<Connection*> open_;
  size_t count_ = 0;   // with those that no thread serves yet
  size_t ending_ = 0;  // of open_
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

std::string error_json(std::string_view sentence) {
  return nlohmann::json{{"error", sentence}}.dump();
}

// Whether the request has one Host header, which names this server.
bool is_host(const httplib::Request& r, const std::string& host, int port) {
  if (r.get_header_value_count("Host") != 1) return false;
  std::string text = r.get_header_value("Host");
  const std::string end = ":" + std::to_string(port);
  if (text.ends_with(end))
    text.resize(text.size() - end.size());
  else if (port != 80)
    return false;
  std::array<unsigned char, 16> address;
  if (text.size() > 1 && text.front() == '[' && text.back() == ']')
    return inet_pton(AF_INET6, text.substr(1, text.size() - 2).c_str(),
                     address.data()) == 1;
  return text == "localhost" || text == host ||
         inet_pton(AF_INET, text.c_str(), address.data()) == 1;
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
        HttpLimits limits)
      : host_(host),
        handler_(std::move(handler)),
        limits_(limits),
        connections_(limits.connections) {
    // Without SO_REUSEPORT, with which a second server would get a part of the
    // connections.
    set_socket_options([](socket_t s) {
      const int yes = 1;
      setsockopt(s, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    });
    new_task_queue = [this] {
      return new Threads(connections_, limits_.connections);
    };
    set_tcp_nodelay(true);
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
    DT_CHECK(port_ > 0, "http",
             "cannot listen at {}:{}; write another --port or --host", host,
             port);
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
  // httplib gives up when it cannot accept a connection, such as for lack of
  // memory.
  void accept_all() {
    while (!listen_after_bind() && !stopping_) {
      std::this_thread::sleep_for(milliseconds(100));
      if (bind_to_port(host_, port_)) ::listen(svr_sock_, kBacklog);
    }
  }

  bool process_and_close_socket(socket_t fd) override {
    Connection c(fd, limits_.body);
    mine = &c;
    connections_.opened(&c);
    bool closed = false;
    if (c.receive()) process_request(c, true, closed, nullptr);
    c.held.reset();
    c.drain();
    connections_.closed(&c);
    close(fd);
    return true;
  }

  void answer(const httplib::Request& request, httplib::Response& response) {
    const auto refuse = [&](int status, std::string_view sentence) {
      response.status = status;
      response.set_content(error_json(sentence), "application/json");
    };
    const bool is_post = request.method == "POST" && limits_.body > 0;
    if (request.method != "GET" && !is_post)
      return refuse(405, limits_.body > 0
                             ? "this server only answers GET and POST"
                             : "this server only answers GET");
    if (mine->refused == 400)
      return refuse(400, "the Content-Length is not a number");
    if (mine->refused == 411)
      return refuse(411, "send the body with its Content-Length");
    if (mine->refused == 413)
      return refuse(
          413, fmt::format("the body is longer than {} bytes", limits_.body));
    if (!is_host(request, host_, port_))
      return refuse(403, fmt::format("the Host header is for another server; "
                                     "open http://localhost:{}/",
                                     port_));
    HttpRequest r;
    r.is_post = is_post;
    r.path = request.path;
    r.authorization = request.get_header_value("Authorization");
    r.body = std::move(mine->body);
    r.socket = mine->socket();
    if (const size_t at = request.target.find('?'); at != std::string::npos)
      r.query = request.target.substr(at + 1);
    r.is_own = is_own(request);
    HttpAnswer a = handler_(r);
    response.status = a.status;
    mine->held = std::move(a.held);
    if (a.stream) {
      response.set_chunked_content_provider(
          a.type, [stream = std::move(a.stream), c = mine](
                      size_t, httplib::DataSink& sink) {
            c->waits = false;  // for the handler, once the head is sent
            bool reads = true;
            stream([&](std::string_view text) {
              reads = reads && sink.write(text.data(), text.size());
              c->waits = false;
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
  const HttpLimits limits_;
  Connections connections_;
  std::atomic<bool> stopping_{false};
  int port_ = -1;
  std::thread thread_;
};

HttpServer::HttpServer(const std::string& host, int port, Handler handler,
                       HttpLimits limits)
    : state_(std::make_unique<State>(host, port, std::move(handler), limits)) {}
HttpServer::~HttpServer() = default;
int HttpServer::port() const { return state_->port(); }

}  // namespace dtensor::explore
