// SPDX-License-Identifier: Apache-2.0
// An HTTP server for a program: GET of small requests and, if it wants them,
// POST with a body.
//
// It is cpp-httplib (Debian's 0.11) with a stream of our own below it, which
// bounds what a client can take: the bytes and the time of a request, the time
// without progress of an answer, and the number of connections. When there are
// too many, the oldest that has not yet sent its request, or that does not read
// its answer, is closed.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <string_view>

namespace dtensor::explore {

struct HttpRequest {
  bool is_post = false;
  std::string path = {};   // decoded
  std::string query = {};  // as sent: behind "?"
  // Whether a page of this server sent it, or a person who typed the address,
  // as far as the browser says. Other pages' requests cannot read the answer,
  // but should not cause work.
  bool is_own = false;
  int socket = -1;                 // to see whether the client has left
  std::string authorization = {};  // the header of that name
  std::string body = {};
};

struct HttpAnswer {
  int status = 200;
  std::string type = "application/json", body = {};
  std::shared_ptr<void> held = {};  // released when the answer has been sent
  // If set, it is called instead of sending `body`, and sends the body piece by
  // piece. send() returns false if the client has left or does not read.
  using Send = std::function<bool(std::string_view)>;
  std::function<void(const Send& send)> stream = {};
};

struct HttpLimits {
  size_t connections = 64;
  size_t body = 0;  // bytes; 0: only GET is answered
};

class HttpServer {
 public:
  // Called by several threads at once; must not throw.
  using Handler = std::function<HttpAnswer(const HttpRequest&)>;

  // Listens at the port (0: one that is free) of the host, an address or a
  // name. Throws Error if it cannot. Answers only requests whose Host header
  // has this port and is an address, "localhost" or `host`, so that no other
  // site's name can be made to point here.
  HttpServer(const std::string& host, int port, Handler, HttpLimits = {});
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
