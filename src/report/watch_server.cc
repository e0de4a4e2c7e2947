#include "report/watch_server.h"

#include <fmt/format.h>

#include <mutex>
#include <optional>
#include <utility>

#include "core/error.h"
#include "http/server.h"
#include "report/forms.h"
#include "report/watch_access.h"

namespace tandem::report {

namespace {

using http::Reply;
using http::Request;
using http::Text;

struct Version {
  uint64_t number = 0;
  Text data, metrics;
};

}  // namespace

struct WatchServer::State {
  WatchServerOptions options;
  mutable std::mutex mutex;
  Version published;
  std::shared_ptr<int> listeners = std::make_shared<int>();  // each stream holds one
  Text page = std::make_shared<const std::string>(live_page());
  std::optional<http::Server> server;  // last, so that it ends first

  Version now() const;
  std::optional<Reply> refusal(const Request& request) const;
  Reply data(const Request& request) const;
  Reply events() const;
  void start();
};

Version WatchServer::State::now() const {
  const std::lock_guard lock(mutex);
  return published;
}

std::optional<Reply> WatchServer::State::refusal(const Request& request) const {
  const std::string bearer = "Bearer ", authorization = request.header("Authorization");
  const std::string given =
      authorization.starts_with(bearer) ? authorization.substr(bearer.size()) : request.parameter("token");
  if (!host_allowed(request.header("Host"), options.address)) {
    return http::plain(403, "this is the server of another name: ask it by the address that it printed");
  }
  if (request.method != "GET" && request.method != "HEAD") {
    return http::plain(405, "only GET is answered here", {{"Allow", "GET, HEAD"}});
  }
  if (!options.token.empty() && !token_matches(given, options.token)) {
    return http::plain(401, "the token is missing or wrong: open the address that `tandem watch` printed");
  }
  return std::nullopt;
}

Reply WatchServer::State::data(const Request& request) const {
  const Version version = now();
  if (!version.data) {
    return http::plain(503, "the runs are being read: ask again in a second");
  }
  const std::string tag = fmt::format("\"{}\"", version.number);
  if (request.header("If-None-Match") == tag) {
    return {.status = 304, .headers = {{"ETag", tag}}};
  }
  return {.headers = {{"ETag", tag}, {"Content-Type", "application/json"}}, .body = version.data};
}

Reply WatchServer::State::events() const {
  if (static_cast<size_t>(listeners.use_count()) > options.most_listeners) {
    return http::plain(503, "too many pages listen already: ask for data.json every few seconds instead",
                       {{"Retry-After", "5"}});
  }
  auto next = [this, listener = listeners, seen = uint64_t{0}]() mutable -> std::optional<std::string> {
    const uint64_t number = now().number;
    return std::exchange(seen, number) == number ? "" : fmt::format("event: changed\nid: {0}\ndata: {0}\n\n", number);
  };
  return {.headers = {{"Content-Type", "text/event-stream"}},
          .stream = {.next = std::move(next), .sign_of_life = ":\n\n"}};
}

void WatchServer::State::start() {
  http::Options front{.address = options.address, .port = options.port};
  front.limits.body_bytes = 0;
  front.headers = {{"X-Content-Type-Options", "nosniff"}, {"X-Frame-Options", "DENY"},
                   {"Referrer-Policy", "no-referrer"},    {"Cross-Origin-Resource-Policy", "same-origin"},
                   {"Cache-Control", "no-store"},         {"Content-Security-Policy", content_security_policy(true)}};
  front.refusal = [this](const Request& request) { return refusal(request); };
  front.routes["/"] = [this](const Request&) {
    return Reply{.headers = {{"Content-Type", "text/html; charset=utf-8"}}, .body = page};
  };
  front.routes["/data.json"] = [this](const Request& request) { return data(request); };
  front.routes["/metrics"] = [this](const Request&) {
    return Reply{.headers = {{"Content-Type", "text/plain; version=0.0.4; charset=utf-8"}}, .body = now().metrics};
  };
  front.routes["/events"] = [this](const Request&) { return events(); };
  server.emplace(std::move(front));
}

WatchServer::WatchServer(WatchServerOptions options) : state_(std::make_unique<State>()) {
  require(is_this_machine(options.address) || !options.token.empty(),
          "whoever reaches {} could read the runs: give a token as well", options.address);
  state_->options = std::move(options);
  state_->start();
}

WatchServer::~WatchServer() = default;

int WatchServer::port() const { return state_->server->port(); }

std::string WatchServer::url() const {
  const WatchServerOptions& options = state_->options;
  const bool v6 = options.address.find(':') != std::string::npos;
  return fmt::format("http://{}{}{}:{}/{}", v6 ? "[" : "", options.address, v6 ? "]" : "", port(),
                     options.token.empty() ? "" : "?token=" + options.token);
}

void WatchServer::publish(std::string data, std::string metrics) {
  {
    const std::lock_guard lock(state_->mutex);
    state_->published = {state_->published.number + 1, std::make_shared<const std::string>(std::move(data)),
                         std::make_shared<const std::string>(std::move(metrics))};
  }
  state_->server->wake();
}

}  // namespace tandem::report
