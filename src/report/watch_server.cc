#include "report/watch_server.h"

#include <fmt/format.h>
#include <httplib.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <thread>

#include "core/error.h"
#include "report/connection_threads.h"
#include "report/forms.h"
#include "report/watch_access.h"

namespace tandem::report {

namespace {

using Clock = std::chrono::steady_clock;
using Text = std::shared_ptr<const std::string>;  // shared by the publisher and every reply in progress

constexpr size_t kMostConnections = 512;  // threads; less than the usual limit of open files
constexpr size_t kPart = 1 << 16;         // bytes written at once
constexpr auto kLongestReply = std::chrono::seconds(60);
constexpr auto kSignOfLife = std::chrono::seconds(15);  // longest time between two lines to a listener

// What was published; listeners can wait for more.
class Published {
 public:
  struct Version {
    uint64_t number = 0;
    Text data, metrics;
  };

  void set(std::string data, std::string metrics) {
    {
      const std::lock_guard lock(mutex_);
      now_ = {now_.number + 1, std::make_shared<const std::string>(std::move(data)),
              std::make_shared<const std::string>(std::move(metrics))};
    }
    changed_.notify_all();
  }
  Version get() const {
    const std::lock_guard lock(mutex_);
    return now_;
  }
  // Waits for a number other than `seen`, for kSignOfLife at most, and returns it; nothing once closed.
  std::optional<uint64_t> wait(uint64_t seen) const {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, kSignOfLife, [&] { return closed_ || now_.number != seen; });
    return closed_ ? std::nullopt : std::optional(now_.number);
  }
  bool closed() const {
    const std::lock_guard lock(mutex_);
    return closed_;
  }
  void close() {
    {
      const std::lock_guard lock(mutex_);
      closed_ = true;
    }
    changed_.notify_all();
  }

 private:
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  Version now_;
  bool closed_ = false;
};

// httplib queues five connections; two hundred that come at once would wait for seconds.
class Server : public httplib::Server {
 public:
  void queue_many() { ::listen(svr_sock_, SOMAXCONN); }
};

void refuse(httplib::Response& response, int status, const std::string& sentence) {
  response.status = status;
  response.set_content(sentence + "\n", "text/plain; charset=utf-8");
}

}  // namespace

struct WatchServer::State {
  WatchServerOptions options;
  Server server;
  Published published;
  std::atomic<size_t> listeners = 0;
  Text page = std::make_shared<const std::string>(live_page());
  int port = 0;
  std::atomic<bool> ended = false;  // listening has ended
  std::thread thread;

  bool admitted(const httplib::Request& request, httplib::Response& response) const;
  void send(httplib::Response& response, const Text& text, const char* type) const;
  void send_data(const httplib::Request& request, httplib::Response& response) const;
  void send_events(httplib::Response& response);
  void set_routes();
  void bind();
};

bool WatchServer::State::admitted(const httplib::Request& request, httplib::Response& response) const {
  const std::string bearer = "Bearer ", authorization = request.get_header_value("Authorization");
  const std::string given =
      authorization.starts_with(bearer) ? authorization.substr(bearer.size()) : request.get_param_value("token");
  if (!host_allowed(request.get_header_value("Host"), options.address)) {
    refuse(response, 403, "this is the server of another name: ask it by the address that it printed");
  } else if (request.method != "GET" && request.method != "HEAD") {
    refuse(response, 405, "only GET is answered here");
  } else if (!options.token.empty() && !token_matches(given, options.token)) {
    refuse(response, 401, "the token is missing or wrong: open the address that `tandem watch` printed");
  } else {
    return true;
  }
  return false;
}

// Sends in parts, so that a reply ends if its reader takes too long.
void WatchServer::State::send(httplib::Response& response, const Text& text, const char* type) const {
  response.set_content_provider(
      text->size(), type,
      [this, text, end = Clock::now() + kLongestReply](size_t offset, size_t length, httplib::DataSink& sink) {
        return Clock::now() < end && !published.closed() && sink.write(text->data() + offset, std::min(length, kPart));
      });
}

void WatchServer::State::send_data(const httplib::Request& request, httplib::Response& response) const {
  const Published::Version version = published.get();
  if (!version.data) {
    return refuse(response, 503, "the runs are being read: ask again in a second");
  }
  const std::string tag = fmt::format("\"{}\"", version.number);
  response.set_header("ETag", tag);
  if (request.get_header_value("If-None-Match") == tag) {
    response.status = 304;
    return;
  }
  send(response, version.data, "application/json");
}

void WatchServer::State::send_events(httplib::Response& response) {
  if (++listeners > options.most_listeners) {
    --listeners;
    response.set_header("Retry-After", "5");
    return refuse(response, 503, "too many pages listen already: ask for data.json every few seconds instead");
  }
  response.set_chunked_content_provider(
      "text/event-stream",
      [this, seen = uint64_t{0}](size_t, httplib::DataSink& sink) mutable {
        const std::optional<uint64_t> number = published.wait(seen);
        if (!number) {
          sink.done();
          return true;
        }
        const std::string line =
            *number == seen ? ":\n\n" : fmt::format("event: changed\nid: {0}\ndata: {0}\n\n", *number);
        seen = *number;
        return sink.write(line.data(), line.size());
      },
      [this](bool) { --listeners; });
}

void WatchServer::State::set_routes() {
  server.set_default_headers({{"X-Content-Type-Options", "nosniff"},
                              {"X-Frame-Options", "DENY"},
                              {"Referrer-Policy", "no-referrer"},
                              {"Cross-Origin-Resource-Policy", "same-origin"},
                              {"Cache-Control", "no-store"},
                              {"Content-Security-Policy", content_security_policy(true)}});
  server.set_pre_routing_handler([this](const httplib::Request& request, httplib::Response& response) {
    using Handled = httplib::Server::HandlerResponse;
    return admitted(request, response) ? Handled::Unhandled : Handled::Handled;
  });
  server.Get("/", [this](const httplib::Request&, httplib::Response& response) {
    send(response, page, "text/html; charset=utf-8");
  });
  server.Get("/data.json",
             [this](const httplib::Request& request, httplib::Response& response) { send_data(request, response); });
  server.Get("/metrics", [this](const httplib::Request&, httplib::Response& response) {
    const Text text = published.get().metrics;
    send(response, text ? text : std::make_shared<const std::string>(), "text/plain; version=0.0.4; charset=utf-8");
  });
  server.Get("/events", [this](const httplib::Request&, httplib::Response& response) { send_events(response); });
  server.set_error_handler([](const httplib::Request&, httplib::Response& response) {
    if (response.body.empty() && response.status == 404) {
      refuse(response, 404, "there is only /, /data.json, /events and /metrics");
    }
  });
}

void WatchServer::State::bind() {
  server.new_task_queue = [] { return new ConnectionThreads(kMostConnections); };  // httplib deletes it
  server.set_payload_max_length(4096);
  server.set_keep_alive_timeout(1);  // seconds; stopping may take as long
  server.set_read_timeout(3);
  server.set_write_timeout(5);
  server.set_tcp_nodelay(true);
  server.set_socket_options([](socket_t socket) {  // httplib's own options let two servers share a port
    const int yes = 1;
    setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
  });
  if (options.port == 0) {
    port = server.bind_to_any_port(options.address);
  } else if (server.bind_to_port(options.address, options.port)) {
    port = options.port;
  }
  require(port > 0, "cannot listen on {} port {}: the port is taken, or the address is not one of this machine's",
          options.address, options.port);
  server.queue_many();
}

WatchServer::WatchServer(WatchServerOptions options) : state_(std::make_unique<State>()) {
  require(is_this_machine(options.address) || !options.token.empty(),
          "whoever reaches {} could read the runs: give --token SECRET as well", options.address);
  state_->options = std::move(options);
  state_->set_routes();
  state_->bind();
  state_->thread = std::thread([state = state_.get()] {
    state->server.listen_after_bind();
    state->ended = true;
  });
}

WatchServer::~WatchServer() {
  state_->published.close();
  while (!state_->server.is_running() && !state_->ended) {  // stop() does nothing before listen_after_bind() has begun
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  state_->server.stop();
  state_->thread.join();
}

int WatchServer::port() const { return state_->port; }

std::string WatchServer::url() const {
  const WatchServerOptions& options = state_->options;
  const bool v6 = options.address.find(':') != std::string::npos;
  return fmt::format("http://{}{}{}:{}/{}", v6 ? "[" : "", options.address, v6 ? "]" : "", state_->port,
                     options.token.empty() ? "" : "?token=" + options.token);
}

void WatchServer::publish(std::string data, std::string metrics) {
  state_->published.set(std::move(data), std::move(metrics));
}

}  // namespace tandem::report
