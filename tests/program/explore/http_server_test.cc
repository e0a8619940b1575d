// SPDX-License-Identifier: Apache-2.0
#include "dtensor/program/explore/http_server.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <fstream>
#include <thread>

#include "tests/testing.h"

namespace dtensor::explore {
namespace {

using Clock = std::chrono::steady_clock;

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kSanitized = true;  // slow; keeps freed memory
#else
constexpr bool kSanitized = false;
#endif

double seconds_since(Clock::time_point begun) {
  return std::chrono::duration<double>(Clock::now() - begun).count();
}

class Client {
 public:
  explicit Client(int port) : fd_(socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in to = {};
    to.sin_family = AF_INET;
    to.sin_port = htons(static_cast<uint16_t>(port));
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    connected = connect(fd_, reinterpret_cast<sockaddr*>(&to), sizeof to) == 0;
  }
  ~Client() { close(fd_); }
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;
  void send(std::string_view text) {
    ::send(fd_, text.data(), text.size(), MSG_NOSIGNAL);
  }
  // Receives until the server closes, until no byte comes for `seconds`, or
  // until the text ends with `last`.
  std::string receive(int seconds = 20, const std::string& last = "") {
    std::string all;
    char some[4096];
    pollfd p{fd_, POLLIN, 0};
    while ((last.empty() || !all.ends_with(last)) &&
           poll(&p, 1, seconds * 1000) == 1) {
      const ssize_t n = recv(fd_, some, sizeof some, 0);
      if (n <= 0) {
        closed = true;
        break;
      }
      all.append(some, static_cast<size_t>(n));
    }
    return all;
  }
  bool connected;
  bool closed = false;  // the server has closed

 private:
  int fd_;
};

std::string request_of(int port, const std::string& target,
                       const std::string& more = "") {
  return fmt::format(
      "GET {} HTTP/1.1\r\nHost: 127.0.0.1:{}\r\nConnection: close\r\n{}\r\n",
      target, port, more);
}

HttpAnswer echo(const HttpRequest& r) {
  if (r.path == "/long") return {.body = std::string(16 << 20, 'x')};
  return {.body = r.path + " " + r.query + (r.is_own ? " own" : " other")};
}

class HttpServerTest : public ::testing::Test {
 protected:
  std::string answer(const std::string& text) {
    Client c(server.port());
    c.send(text);
    return c.receive();
  }
  std::string get(const std::string& target, const std::string& more = "") {
    return answer(request_of(server.port(), target, more));
  }
  // True if a request is answered in time, whatever else goes on: before the
  // five seconds after which slow clients are closed.
  bool is_well() {
    const auto begun = Clock::now();
    const bool good = get("/well").ends_with("\r\n\r\n/well  own");
    return good && seconds_since(begun) < (kSanitized ? 40 : 4);
  }
  HttpServer server{"127.0.0.1", 0, echo, {.hosts = {"model.EXAMPLE"}}};
};

TEST_F(HttpServerTest, Answers) {
  const std::string text = get("/a%20b?x=%3D&x=%3D");
  EXPECT_TRUE(text.starts_with("HTTP/1.1 200 OK\r\n")) << text;
  EXPECT_TRUE(text.ends_with("\r\n\r\n/a b x=%3D&x=%3D own")) << text;
  EXPECT_TRUE(
      get("/", "Content-Length: 0\r\nX-Empty:\r\n").ends_with("/  own"));
  EXPECT_EQ(text.find("Access-Control"), text.npos);
  for (const char* header :
       {"X-Content-Type-Options: nosniff", "X-Frame-Options: DENY",
        "Cache-Control: no-store", "Connection: close"})
    EXPECT_NE(text.find(header), text.npos) << header;
}

TEST_F(HttpServerTest, TellsItsOwnPagesFromOthers) {
  EXPECT_TRUE(get("/", "Sec-Fetch-Site: same-origin\r\n").ends_with(" own"));
  EXPECT_TRUE(get("/", "Sec-Fetch-Site: none\r\n").ends_with(" own"));
  EXPECT_TRUE(get("/", "Sec-Fetch-Site: cross-site\r\n").ends_with(" other"));
  EXPECT_TRUE(get("/", "Sec-Fetch-Site: same-site\r\n").ends_with(" other"));
  // Without TLS, browsers send a server on another machine only Origin.
  const std::string own = "http://127.0.0.1:" + std::to_string(server.port());
  EXPECT_TRUE(get("/", "Origin: " + own + "\r\n").ends_with(" own"));
  for (const std::string other : {"http://evil.example", "null"})
    EXPECT_TRUE(get("/", "Origin: " + other + "\r\n").ends_with(" other"));
}

TEST_F(HttpServerTest, RefusesOtherHosts) {
  const auto status = [&](const std::string& headers) {
    return answer("GET / HTTP/1.1\r\nConnection: close\r\n" + headers + "\r\n")
        .substr(9, 3);
  };
  const std::string port = ":" + std::to_string(server.port());
  // Another port (it may be forwarded) or none (80) is accepted.
  for (const std::string& end : {port, std::string(":9000"), std::string()}) {
    for (const std::string host : {"127.0.0.1", "localhost", "LocalHost",
                                   "[::1]", "10.0.0.7", "Model.example"})
      EXPECT_EQ(status("Host: " + host + end + "\r\n"), "200") << host;
    for (const std::string host :
         {"evil.example", "127.0.0.1.evil.example", "localhost.evil.example",
          "[evil]", "::1", "localhost:x", "a.model.example", ""})
      EXPECT_EQ(status("Host: " + host + end + "\r\n"), "403") << host;
  }
  EXPECT_EQ(status(""), "403");
  EXPECT_EQ(status("Host: localhost" + port + "\r\nHost: evil.example\r\n"),
            "403");
}

TEST_F(HttpServerTest, RefusesOtherMethods) {
  const std::string host =
      fmt::format("Host: localhost:{}\r\nConnection: close\r\n", server.port());
  for (const char* method : {"POST", "HEAD", "PUT", "DELETE", "OPTIONS"})
    EXPECT_EQ(answer(method + (" / HTTP/1.1\r\n" + host) +
                     "Content-Length: 5\r\n\r\nhello")
                  .substr(9, 3),
              "405")
        << method;
}

std::string ask(const std::string& path, const std::string& more = "") {
  return "GET " + path + " HTTP/1.1\r\nHost: localhost\r\n" + more + "\r\n";
}

TEST_F(HttpServerTest, KeepsAConnection) {
  Client c(server.port());
  for (int i = 0; i < 3; ++i) {
    const std::string path = fmt::format("/{}", i);
    c.send(ask(path));
    const std::string text = c.receive(20, path + "  own");
    EXPECT_TRUE(text.starts_with("HTTP/1.1 200 OK\r\n")) << text;
    EXPECT_NE(text.find("\r\nKeep-Alive: timeout=30, max=1000\r\n"), text.npos);
    EXPECT_FALSE(c.closed);
  }
  // Requests may come together.
  c.send(ask("/a") + ask("/b") + ask("/c", "Connection: Close\r\n"));
  const std::string text = c.receive();
  EXPECT_TRUE(c.closed);
  for (const char* body : {"/a  own", "/b  own", "/c  own"})
    EXPECT_NE(text.find(body), text.npos) << body;
  Client old(server.port());
  old.send("GET /d HTTP/1.0\r\nHost: localhost\r\n\r\n");
  EXPECT_TRUE(old.receive().ends_with("/d  own"));
  EXPECT_TRUE(old.closed);
  // httplib cannot say where the next request begins.
  Client broken(server.port());
  broken.send("GET\r\n\r\n" + ask("/e"));
  EXPECT_EQ(broken.receive().find("/e  own"), std::string::npos);
  EXPECT_TRUE(broken.closed);
}

class PostTest : public ::testing::Test {
 protected:
  static HttpAnswer handle(const HttpRequest& r) {
    if (r.path == "/stream")
      return {.type = "text/event-stream", .stream = [](const auto& send) {
                for (const char* piece : {"one", "two", "three"})
                  if (!send(piece)) return;
              }};
    if (r.path == "/late")
      return {.stream = [](const auto& send) {
        late = 1;
        while (late != 2)
          std::this_thread::sleep_for(std::chrono::milliseconds(5));
        send("late");
      }};
    if (r.path == "/endless")
      return {.stream = [](const auto& send) {
        while (send(std::string(1000, 'x'))) continue;
        left = true;
      }};
    if (r.path == "/slow") std::this_thread::sleep_for(pause);
    if (r.path == "/later")
      return {.status = 503, .headers = {{"Retry-After", "7"}}};
    return {.body = fmt::format("{} {} {}", r.method, r.authorization, r.body)};
  }
  std::string post(const std::string& path, const std::string& headers,
                   const std::string& body) {
    Client c(server.port());
    c.send(
        fmt::format("POST {} HTTP/1.1\r\nHost: localhost:{}\r\n"
                    "Connection: close\r\n{}\r\n{}",
                    path, server.port(), headers, body));
    return c.receive();
  }
  static inline std::atomic<bool> left{false};
  static inline std::atomic<int> late{0};                // how far /late is
  static constexpr std::chrono::milliseconds pause{20};  // of /slow
  HttpServer server{"127.0.0.1",
                    0,
                    handle,
                    {.connections = 4, .body = 100000, .bodies = 250000}};
};

TEST_F(PostTest, ReadsABody) {
  EXPECT_TRUE(post("/", "Content-Length: 5\r\nAuthorization: Bearer a b\r\n",
                   "helloand more")
                  .ends_with("\r\n\r\nPOST Bearer a b hello"));
  EXPECT_TRUE(post("/", "", "").ends_with("\r\n\r\nPOST  "));
  const std::string most(100000, 'x');
  EXPECT_TRUE(post("/", "content-length:100000\r\n", most).ends_with(most));
  Client c(server.port());
  c.send(request_of(server.port(), "/"));
  EXPECT_TRUE(c.receive().ends_with("\r\n\r\nGET  "));
}

TEST_F(PostTest, AsksForABodyThatWaits) {
  EXPECT_TRUE(post("/", "Content-Length: 9\r\nExpect: 100-continue\r\n", "")
                  .starts_with("HTTP/1.1 100 Continue\r\n\r\n"));
}

TEST_F(PostTest, RefusesABodyThatIsTooLong) {
  const auto status = [&](const std::string& headers, size_t size) {
    return post("/", headers, std::string(size, 'x')).substr(9, 3);
  };
  EXPECT_EQ(status("Content-Length: 100001\r\n", 100001), "413");
  EXPECT_EQ(status("Content-Length: 9000000\r\n", 9000000), "413");
  EXPECT_EQ(status("Content-Length: 99999999999999999999\r\n", 0), "413");
  EXPECT_EQ(status("Content-Length: -1\r\n", 0), "413");
}

// The server still reads for two seconds, but has ended its own side before.
TEST_F(PostTest, ARefusedClientSeesTheEndAtOnce) {
  const auto begun = Clock::now();
  for (int i = 0; i < 3; ++i)
    EXPECT_EQ(post("/", "Content-Length: 100001\r\n", "").substr(9, 3), "413");
  EXPECT_LT(seconds_since(begun), 3);
}

TEST_F(PostTest, ReadsABodyInChunks) {
  const auto chunked = [&](const std::string& body) {
    return post("/", "Transfer-Encoding: Chunked\r\n", body);
  };
  EXPECT_TRUE(chunked("5\r\nhello\r\n1;name=value\r\n \r\n0000\r\n\r\n")
                  .ends_with("\r\n\r\nPOST  hello "));
  EXPECT_TRUE(chunked("2\r\n\r\n\r\n0\r\nTrailer: a\r\nOther: b\r\n\r\n")
                  .ends_with("\r\n\r\nPOST  \r\n"));
  const std::string most(99999, 'x');
  EXPECT_TRUE(chunked("1\r\ny\r\n1869F\r\n" + most + "\r\n0\r\n\r\n")
                  .ends_with(" y" + most));
  const auto status = [&](const std::string& body) {
    return chunked(body).substr(9, 3);
  };
  EXPECT_EQ(status("2\r\nyy\r\n1869F\r\n" + most), "413");
  EXPECT_EQ(status("ffffffffffffffff\r\nx"), "413");
  EXPECT_EQ(status("0fffffffffffffffffffff\r\nx"), "413");
  for (const char* body : {"x\r\n", "-1\r\n", "\r\n", " 5\r\nhello", "0x5\r\n",
                           "5\r\nhello0\r\n\r\n", "5\r\nhello!\r\n"})
    EXPECT_EQ(status(body), "400") << body;
  EXPECT_EQ(status("0\r\n" + std::string(50000, 'x') + "\r\n\r\n"), "400");
  // Servers that read such requests differently would see different requests.
  EXPECT_EQ(post("/", "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n",
                 "0\r\n\r\n")
                .substr(9, 3),
            "400");
  EXPECT_EQ(post("/", "Content-Length: 5\r\nContent-Length: 6\r\n", "hello!")
                .substr(9, 3),
            "400");
  for (const std::string header :
       {"Transfer-Encoding : chunked", "Content-Length : 5",
        "Transfer-Encoding:\r\n chunked",
        "Content-Length:", "Content-Length: ", "X: a\nContent-Length: 5",
        "X: a\rContent-Length: 5", "no colon", ": no name"})
    EXPECT_EQ(post("/", header + "\r\n", "0\r\n\r\n").substr(9, 3), "400")
        << header;
  for (const std::string coding : {"gzip, chunked", "gzip", "chunked, chunked"})
    EXPECT_EQ(post("/", "Transfer-Encoding: " + coding + "\r\n", "0\r\n\r\n")
                  .substr(9, 3),
              "501")
        << coding;
}

// The next request begins right behind the body.
TEST_F(PostTest, KeepsAConnectionBehindABody) {
  const std::string head = "POST / HTTP/1.1\r\nHost: localhost\r\n";
  Client c(server.port());
  c.send(head + "Content-Length: 3\r\n\r\nabc" + head +
         "Transfer-Encoding: chunked\r\n\r\n3\r\ndef\r\n0\r\n\r\n" +
         ask("/stream"));
  const std::string text = c.receive(20, "\r\n0\r\n\r\n");
  EXPECT_NE(text.find("POST  abcHTTP/1.1 200"), text.npos) << text;
  EXPECT_NE(text.find("POST  defHTTP/1.1 200"), text.npos) << text;
  EXPECT_FALSE(c.closed);
  c.send(head + "Content-Length: 100001\r\n\r\n" + std::string(100001, 'x'));
  EXPECT_EQ(c.receive().substr(9, 3), "413");
  EXPECT_TRUE(c.closed);
}

TEST_F(PostTest, ADifferentMethodIsTheHandlers) {
  const auto begin = [&](const std::string& method) {
    Client c(server.port());
    c.send(method +
           " / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    return c.receive();
  };
  for (const std::string method : {"PUT", "DELETE", "OPTIONS", "PATCH"})
    EXPECT_TRUE(begin(method).ends_with("\r\n\r\n" + method + "  ")) << method;
  EXPECT_TRUE(begin("HEAD").ends_with("\r\n\r\n"));
  EXPECT_NE(post("/later", "", "").find("\r\nRetry-After: 7\r\n"),
            std::string::npos);
}

// The server holds three bodies of 80,000 bytes at once, but not four. It
// accepts small bodies meanwhile.
TEST_F(PostTest, BoundsTheBytesOfAllBodies) {
  const std::string head =
      "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 80000\r\n\r\n";
  std::vector<std::unique_ptr<Client>> senders;
  for (int i = 0; i < 3; ++i) {
    senders.push_back(std::make_unique<Client>(server.port()));
    senders.back()->send(head + "x");
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  const std::string text = post("/", "Content-Length: 80000\r\n", "");
  EXPECT_TRUE(text.starts_with("HTTP/1.1 503 ")) << text;
  EXPECT_NE(text.find("\r\nRetry-After: 1\r\n"), text.npos) << text;
  EXPECT_TRUE(post("/", "Content-Length: 5\r\n", "hello").ends_with(" hello"));
  senders.pop_back();
  // A refused body holds nothing, even while its client may still send it.
  Client refused(server.port());
  refused.send(
      "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100000\r\n\r\n");
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  const std::string fits(80000, 'y');
  EXPECT_TRUE(post("/", "Content-Length: 80000\r\n", fits).ends_with(fits));
  senders.clear();
  const std::string body(80000, 'x');
  EXPECT_TRUE(post("/", "Content-Length: 80000\r\n", body).ends_with(body));
}

// There are more clients than connections. All are answered in turn, or told to
// retry.
TEST_F(PostTest, AnswersManyAtOnce) {
  std::vector<std::unique_ptr<Client>> clients;
  for (int i = 0; i < 60; ++i)
    clients.push_back(std::make_unique<Client>(server.port()));
  std::vector<std::string> texts(clients.size());
  std::vector<std::thread> threads;
  for (size_t i = 0; i < clients.size(); ++i)
    threads.emplace_back([&, i] {
      clients[i]->send(ask("/slow", "Connection: close\r\n"));
      texts[i] = clients[i]->receive();
    });
  for (std::thread& t : threads) t.join();
  int answered = 0;
  for (const std::string& text : texts) {
    answered += text.starts_with("HTTP/1.1 200 ");
    EXPECT_TRUE(text.starts_with("HTTP/1.1 200 ") ||
                (text.starts_with("HTTP/1.1 503 ") &&
                 text.find("\r\nRetry-After: 1\r\n") != text.npos))
        << text;
  }
  EXPECT_GE(answered, 4);
}

TEST_F(PostTest, AClientThatSendsNothingIsToldToComeBack) {
  std::vector<std::unique_ptr<Client>> silent;
  for (int i = 0; i < 4; ++i)
    silent.push_back(std::make_unique<Client>(server.port()));
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_TRUE(post("/", "", "").ends_with("POST  "));
  int told = 0;
  for (const auto& c : silent)
    told += c->receive(0).starts_with("HTTP/1.1 503 ");
  EXPECT_EQ(told, 1);
}

// New connections replace those that wait for their next request.
TEST_F(PostTest, IdleConnectionsGiveWay) {
  std::vector<std::unique_ptr<Client>> idle;
  for (int i = 0; i < 8; ++i) {
    idle.push_back(std::make_unique<Client>(server.port()));
    idle.back()->send(ask("/"));
    EXPECT_TRUE(idle.back()->receive(20, "GET  ").ends_with("GET  ")) << i;
  }
  int open = 0;
  for (const auto& c : idle) open += c->receive(0).empty() && !c->closed;
  EXPECT_EQ(open, 4);
}

TEST_F(PostTest, RefusesALengthThatIsNoNumber) {
  for (const std::string length : {"x", "5x", "+5", "0x5", "5 5", "5,5"}) {
    const std::string text =
        post("/", "Content-Length: " + length + "\r\n", "hello");
    EXPECT_EQ(text.substr(9, 3), "400") << length;
    EXPECT_NE(text.find("Content-Length is not a number"), text.npos) << text;
  }
  EXPECT_TRUE(post("/", "Content-Length: 5 \t \r\n", "hello")
                  .ends_with("\r\n\r\nPOST  hello"));
}

// A client whose stream has no first piece yet is not a slow client.
TEST_F(PostTest, KeepsAStreamThatHasNothingToSendYet) {
  Client waiting(server.port());
  waiting.send(request_of(server.port(), "/late"));
  const auto begun = Clock::now();
  while (late != 1 && seconds_since(begun) < 5)
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  // Longer than a connection may wait for its client when others come.
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  std::vector<std::unique_ptr<Client>> silent;
  for (int i = 0; i < 8; ++i)
    silent.push_back(std::make_unique<Client>(server.port()));
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  late = 2;
  EXPECT_TRUE(waiting.receive().ends_with("\r\n4\r\nlate\r\n0\r\n\r\n"));
}

TEST_F(PostTest, SendsAStreamPieceByPiece) {
  const std::string text = post("/stream", "", "");
  EXPECT_NE(text.find("Content-Type: text/event-stream\r\n"), text.npos);
  EXPECT_TRUE(
      text.ends_with("\r\n\r\n3\r\none\r\n3\r\ntwo\r\n5\r\nthree\r\n0\r\n\r\n"))
      << text;
}

TEST_F(PostTest, EndsAStreamThatNobodyReads) {
  left = false;
  {
    Client c(server.port());
    c.send(request_of(server.port(), "/endless"));
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    EXPECT_FALSE(left);
  }
  const auto begun = Clock::now();
  while (!left && seconds_since(begun) < 5)
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  EXPECT_TRUE(left);
}

// Ranges would multiply an answer, and compression would take seconds, so the
// server ignores both headers.
TEST_F(HttpServerTest, SendsAnAnswerWholeAndAsItIs) {
  const std::string text =
      get("/a", "Range: bytes=0-,0-,0-\r\nAccept-Encoding: br, gzip\r\n");
  EXPECT_TRUE(text.starts_with("HTTP/1.1 200")) << text;
  EXPECT_TRUE(text.ends_with("\r\n\r\n/a  own")) << text;
}

TEST_F(HttpServerTest, SendsALongAnswer) {
  EXPECT_GT(get("/long").size(), 16u << 20);
}

TEST_F(HttpServerTest, TakesNoPortThatIsTaken) {
  EXPECT_NE(
      testing::error_of([&] { HttpServer("127.0.0.1", server.port(), echo); }),
      "no error");
}

TEST_F(HttpServerTest, EndsWhileClientsAreSilent) {
  std::unique_ptr<Client> silent;
  Clock::time_point begun;
  {
    HttpServer other("127.0.0.1", 0, echo);
    silent = std::make_unique<Client>(other.port());
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    begun = Clock::now();
  }
  EXPECT_LT(seconds_since(begun), 2);
}

TEST_F(HttpServerTest, GivesASlowRequestFiveSeconds) {
  const auto begun = Clock::now();
  Client slow(server.port());
  while (seconds_since(begun) < 6) {  // a byte at a time
    slow.send("G");
    std::this_thread::sleep_for(std::chrono::milliseconds(250));
  }
  EXPECT_EQ(slow.receive(1), "");
  EXPECT_TRUE(slow.closed);
  EXPECT_TRUE(is_well());
}

// Clients that send nothing, little or only headers, and clients that do not
// read their answer, do not block others.
TEST_F(HttpServerTest, ManySlowClientsDoNotBlockAQuickOne) {
  std::vector<std::unique_ptr<Client>> clients;
  const auto add = [&](int many) {
    for (int i = 0; i < many; ++i) {
      clients.push_back(std::make_unique<Client>(server.port()));
      if (i % 3 == 1) clients.back()->send("GET / HTTP/1.1\r\nHost: a");
      if (i % 12 == 2) clients.back()->send(request_of(server.port(), "/long"));
    }
  };
  for (int i = 0; i < 10; ++i) {
    add(10);
    EXPECT_TRUE(is_well()) << i;
  }
  for (int i = 0; i < 2; ++i) {
    add(400);  // faster than the server can close others
    EXPECT_TRUE(is_well()) << i;
    clients.clear();
  }
}

int64_t resident() {
  std::ifstream file("/proc/self/statm");
  int64_t pages = 0;
  file >> pages >> pages;
  return pages * sysconf(_SC_PAGESIZE);
}

TEST_F(HttpServerTest, AThousandHostileRequestsTakeNoMemory) {
  const std::string host = fmt::format("Host: localhost:{}\r\n", server.port());
  const std::string get = "GET / HTTP/1.1\r\n" + host;
  std::string headers, ranges = "0-";
  for (int i = 0; i < 4000; ++i) headers += fmt::format("a{}: b\r\n", i);
  for (int i = 0; i < 1500; ++i) ranges += ",0-";
  const std::string texts[] = {
      "",
      "\r\n\r\n",
      std::string(100, '\0'),
      "GET\r\n\r\n",
      "GET /\r\n\r\n",
      "GET / HTTP/9.9\r\n\r\n",
      "GET  /  HTTP/1.1\r\n\r\n",
      "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",  // TLS
      "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
      std::string(1 << 20, 'A'),
      "GET /" + std::string(1 << 20, 'A') + " HTTP/1.1\r\n" + host + "\r\n",
      "GET /" + std::string(7000, '?') + " HTTP/1.1\r\n" + host + "\r\n",
      "GET /?" + std::string(7000, '&') + " HTTP/1.1\r\n" + host + "\r\n",
      "GET /%00%ff%zz%u1234%uD800% HTTP/1.1\r\n" + host + "\r\n",
      "GET /../../etc/passwd HTTP/1.1\r\n" + host + "\r\n",
      "GET /..%2f..%2fetc/passwd HTTP/1.1\r\n" + host + "\r\n",
      get + "A: " + std::string(1 << 20, 'B') + "\r\n\r\n",
      get + headers + "\r\n",
      get + "Range: bytes=" + ranges + "\r\n\r\n",
      get + "Range: bytes=" + std::string(8000, '9') + "-\r\n\r\n",
      get + "Content-Length: 99999999999999999999\r\n\r\n",
      get + "Content-Length: -1\r\n\r\n" + std::string(100000, 'x'),
      get + "Transfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n",
      get + "Expect: 100-continue\r\nContent-Length: 5\r\n\r\n",
      get + "Content-Type: multipart/form-data; boundary=\r\n\r\n--",
      get + "\r\n" + get + "\r\n" + get + "\r\n",
      get + "no colon\r\n: no name\r\n a: b\r\n\r\n",
      get + "A: \x80\xff\x01\r\n\r\n",
      get,  // without an end
      "POST / HTTP/1.1\r\n" + host + "Content-Length: 1000000\r\n\r\n" +
          std::string(1000000, 'x'),
  };
  const auto attack = [&](int rounds) {
    for (int i = 0; i < rounds; ++i)
      for (const std::string& text : texts) {
        Client c(server.port());
        ASSERT_TRUE(c.connected);
        c.send(text);
        if (i % 2) c.receive(0);  // else leave
      }
  };
  attack(10);
  EXPECT_TRUE(is_well());
  const int64_t before = resident();
  attack(50);
  EXPECT_TRUE(is_well());
  const int64_t more = resident() - before;
  RecordProperty("more_bytes", static_cast<int>(more));
  if (!kSanitized) {
    EXPECT_LT(more, 4 << 20);
  }
}

}  // namespace
}  // namespace dtensor::explore
