// SPDX-License-Identifier: Apache-2.0
// An HTTP server for a program. It answers GET and, if HttpOptions::body is not
// 0, all other methods.
//
// It is cpp-httplib (Debian's 0.11) on top of a stream of our own, which limits
// clients: the bytes and the time of a request, the time for which an answer
// makes no progress, and the number of connections. A connection usually stays
// open for the client's next request. If too many are open, new ones wait until
// an open one ends. To make room, the server closes connections that have
// waited for their client for a quarter of a second. A client that has not sent
// its first request then gets status 503.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace dtensor::explore {

struct HttpRequest {
  std::string method = "GET";
  std::string path = {};   // decoded
  std::string query = {};  // the text after "?", as sent
  // Whether a page of this server sent it, or a person who typed the address,
  // as far as the browser says. Pages of other servers cannot read the answer,
  // but their requests should not cause work.
  bool is_own = false;
  int socket = -1;                 // to see whether the client has left
  std::string authorization = {};  // the header of that name
  std::string body = {};
};

struct HttpAnswer {
  int status = 200;
  std::string type = "application/json", body = {};
  std::vector<std::pair<std::string, std::string>> headers = {};  // additional
  std::shared_ptr<void> held = {};  // released when the answer has been sent
  // If set, it is called instead of sending `body`, and sends the body piece by
  // piece. send() returns false if the client has left or does not read.
  using Send = std::function<bool(std::string_view)>;
  std::function<void(const Send& send)> stream = {};
};

struct HttpOptions {
  size_t connections = 64;  // the most at once
  // The most bytes of a body, sent whole or in chunks. If it is 0, the handler
  // gets only GET, and other methods are refused; else it gets every method.
  size_t body = 0;
  // The most bytes that all bodies longer than 64 KiB, held at the same time,
  // may have together. A request whose body would exceed this gets status 503.
  // (One that arrives in chunks counts as `body` bytes until it is complete.)
  size_t bodies = 64 << 20;
  std::vector<std::string> hosts = {};  // more names of this server
  // The flag that adds a name to `hosts`, for an error's text; "": no flag.
  std::string host_flag = {};
};

class HttpServer {
 public:
  // Called by several threads at once; must not throw.
  using Handler = std::function<HttpAnswer(HttpRequest)>;

  // Listens at the port (0: one that is free) of the host, an address or a
  // name. Throws Error if it cannot. Answers only requests whose Host header,
  // without its port, is an address, "localhost", `host` or one of
  // HttpOptions::hosts, in upper or lower case. So a site whose name somebody
  // makes point here (DNS rebinding) gets only status 403.
  HttpServer(const std::string& host, int port, Handler, HttpOptions = {});
  // Closes all connections, and waits for handlers to return.
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  int port() const;

 private:
  class State;
  std::unique_ptr<State> state_;
};

}  // namespace dtensor::explore
