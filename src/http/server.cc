#include "http/server.h"

#include <fmt/format.h>
#include <microhttpd.h>
#include <poll.h>
#include <strings.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <string_view>
#include <thread>
#include <unordered_map>

#include "core/error.h"
#include "core/file.h"
#include "core/parse.h"
#include "http/listen.h"

namespace tandem::http {

namespace {

using Clock = std::chrono::steady_clock;

constexpr auto kLook = std::chrono::milliseconds(250);  // time between two looks for what is overdue
constexpr size_t kAtOnce = 64;                          // connections accepted before the others get a turn
constexpr size_t kPart = 4096;                          // bytes of a stream, where the client cannot take chunks

enum class Phase {
  kReceiving,  // a request, or nothing
  kReplying,
  kSilent,   // a stream that has nothing to send: suspended, so libmicrohttpd does not look at it
  kDropped,  // its socket is shut down
};

std::string find(const Values& values, const std::string& name) {
  const auto found = std::ranges::find_if(
      values, [&](const auto& value) { return strcasecmp(value.first.c_str(), name.c_str()) == 0; });
  return found == values.end() ? "" : found->second;
}

MHD_Result add_value(void* values, MHD_ValueKind, const char* name, const char* value) {
  static_cast<Values*>(values)->emplace_back(name, value == nullptr ? "" : value);
  return MHD_YES;
}

bool is_gone(int socket) {
  pollfd event{socket, POLLRDHUP, 0};
  return ::poll(&event, 1, 0) > 0;
}

// A zero byte would end a path early, so it stays encoded.
size_t unescape(void*, MHD_Connection*, char* text) {
  return std::string_view(text).find("%00") == std::string_view::npos ? MHD_http_unescape(text) : std::strlen(text);
}

}  // namespace

std::string Request::header(const std::string& name) const { return find(headers, name); }
std::string Request::parameter(const std::string& name) const { return find(query, name); }

Reply plain(int status, const std::string& sentence, Values headers) {
  headers.emplace_back("Content-Type", "text/plain; charset=utf-8");
  return {status, std::move(headers), std::make_shared<const std::string>(sentence + "\n")};
}

// All but `ending` and `waker` belongs to the thread once it runs.
struct Server::State {
  struct Connection {
    State* state = nullptr;
    MHD_Connection* handle = nullptr;
    int socket = -1;
    Phase phase = Phase::kReceiving;
    Clock::time_point since = Clock::now();  // when the phase, or the part of the stream, began
    std::optional<Request> request = {};     // once the headers are complete
    Stream stream = {};
    std::string part = {};  // of the stream
    size_t sent = 0;        // of the part
    bool over = false;      // the stream has no more
  };

  explicit State(Options given) : options(std::move(given)) {}
  ~State();

  void start();
  void serve();
  void accept_some();
  void add(MHD_Connection* handle);
  void await_request(Connection& connection);
  void drop(Connection& connection);
  void look_for_overdue();
  void ask_streams();
  bool ask(Connection& connection);
  void resume(Connection& connection);
  ssize_t read_stream(Connection& connection, char* buffer, size_t most);
  MHD_Result receive(MHD_Connection* handle, const char* path, const char* method, const char* data, size_t* bytes);
  Reply answer(const Request& request);
  MHD_Result send(Connection& connection, Reply reply, bool close);

  Options options;
  int port = 0;
  std::unordered_map<MHD_Connection*, Connection> connections;  // which keeps each in its place
  MHD_Daemon* daemon = nullptr;
  Descriptor listener;
  bool paused = false;  // none can be accepted before the next look, for want of files
  Descriptor waker{eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
  std::atomic<bool> ending = false;
  std::thread thread;
};

void Server::State::start() {
  rlimit files{};
  getrlimit(RLIMIT_NOFILE, &files);
  options.limits.connections = std::min<size_t>(options.limits.connections, files.rlim_cur / 2);
  listener = listen_at(options.address, options.port);
  port = port_of(listener);
  // libmicrohttpd calls these from MHD_run() and MHD_stop_daemon(), so on the server's thread only.
  const auto on_request = [](void* state, MHD_Connection* handle, const char* path, const char* method, const char*,
                             const char* data, size_t* bytes,
                             void**) { return static_cast<State*>(state)->receive(handle, path, method, data, bytes); };
  const auto on_connection = [](void* state, MHD_Connection* handle, void**, MHD_ConnectionNotificationCode code) {
    if (code == MHD_CONNECTION_NOTIFY_STARTED) {
      static_cast<State*>(state)->add(handle);
    } else {
      static_cast<State*>(state)->connections.erase(handle);
    }
  };
  const auto on_end_of_reply = [](void* state, MHD_Connection* handle, void**, MHD_RequestTerminationCode) {
    static_cast<State*>(state)->await_request(static_cast<State*>(state)->connections.at(handle));
  };
  daemon = MHD_start_daemon(
      MHD_USE_EPOLL | MHD_ALLOW_SUSPEND_RESUME | MHD_USE_NO_LISTEN_SOCKET, 0, nullptr, nullptr, +on_request, this,
      MHD_OPTION_CONNECTION_LIMIT, static_cast<unsigned>(options.limits.connections + 2 * kAtOnce),
      MHD_OPTION_CONNECTION_MEMORY_LIMIT, options.limits.header_bytes, MHD_OPTION_NOTIFY_CONNECTION,
      static_cast<MHD_NotifyConnectionCallback>(+on_connection), this, MHD_OPTION_NOTIFY_COMPLETED,
      static_cast<MHD_RequestCompletedCallback>(+on_end_of_reply), this, MHD_OPTION_UNESCAPE_CALLBACK, &unescape,
      nullptr, MHD_OPTION_END);
  require(daemon != nullptr && waker.open(),
          "the HTTP server cannot start: is the limit of open files (ulimit -n) low?");
  thread = std::thread([this] { serve(); });
}

Server::State::~State() {
  if (!thread.joinable()) {
    return;
  }
  ending = true;
  eventfd_write(waker.get(), 1);
  thread.join();
}

void Server::State::serve() {
  const int sockets = MHD_get_daemon_info(daemon, MHD_DAEMON_INFO_EPOLL_FD)->epoll_fd;
  Clock::time_point next_look = Clock::now();
  while (!ending) {
    MHD_UNSIGNED_LONG_LONG ignored = 0;
    const bool pending = MHD_get_timeout(daemon, &ignored) == MHD_YES;
    std::array<pollfd, 3> events = {
        {{sockets, POLLIN, 0}, {paused ? -1 : listener.get(), POLLIN, 0}, {waker.get(), POLLIN, 0}}};
    ::poll(events.data(), events.size(), pending ? 0 : static_cast<int>(kLook.count()));
    if (eventfd_t count = 0; eventfd_read(waker.get(), &count) == 0) {
      ask_streams();
    }
    if (Clock::now() >= next_look) {
      look_for_overdue();
      next_look = Clock::now() + kLook;
    }
    accept_some();
    MHD_run(daemon);
  }
  for (auto& [handle, connection] : connections) {
    drop(connection);  // none may be suspended now
  }
  MHD_stop_daemon(daemon);
}

// libmicrohttpd itself accepts ten between two rounds of all others, so that a good client would wait for long behind
// hundreds that come again and again.
void Server::State::accept_some() {
  const size_t at_once =
      std::min(kAtOnce, 1 + options.limits.connections / 4);  // so that each is read before it gives way
  for (size_t i = 0; i < at_once && !paused; ++i) {
    sockaddr_storage address{};
    socklen_t size = sizeof address;
    auto* const client = reinterpret_cast<sockaddr*>(&address);
    const int socket = ::accept4(listener.get(), client, &size, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (socket < 0) {
      paused = errno != EAGAIN;
      return;
    }
    MHD_add_connection(daemon, socket, client, size);  // which closes it if that fails
  }
}

void Server::State::add(MHD_Connection* handle) {
  Connection& added = connections[handle];
  added.state = this;
  added.handle = handle;
  added.socket = MHD_get_connection_info(handle, MHD_CONNECTION_INFO_CONNECTION_FD)->connect_fd;
  size_t open = 0;
  Connection* oldest = &added;
  for (auto& [other, connection] : connections) {
    open += connection.phase == Phase::kDropped ? 0 : 1;
    if (connection.phase == Phase::kReceiving && connection.since < oldest->since) {
      oldest = &connection;
    }
  }
  if (open > options.limits.connections) {
    drop(*oldest);
  }
}

// The next request on the same connection.
void Server::State::await_request(Connection& connection) {
  connection = {.state = this,
                .handle = connection.handle,
                .socket = connection.socket,
                .phase = connection.phase == Phase::kDropped ? Phase::kDropped : Phase::kReceiving};
}

// libmicrohttpd notices that the socket is shut down and closes it.
void Server::State::drop(Connection& connection) {
  ::shutdown(connection.socket, SHUT_RDWR);
  if (connection.phase == Phase::kSilent) {
    resume(connection);
  }
  connection.phase = Phase::kDropped;
}

void Server::State::look_for_overdue() {
  paused = false;
  const Limits& limits = options.limits;
  for (auto& [handle, connection] : connections) {
    const Clock::duration age = Clock::now() - connection.since;
    if ((connection.phase == Phase::kReceiving && age > limits.request_time) ||
        (connection.phase == Phase::kReplying && age > limits.reply_time) ||
        (connection.phase == Phase::kSilent && is_gone(connection.socket))) {
      drop(connection);
    }
  }
  ask_streams();
}

void Server::State::ask_streams() {
  for (auto& [handle, connection] : connections) {
    if (connection.phase == Phase::kSilent && ask(connection)) {
      resume(connection);
    }
  }
}

// Whether the stream has something to send, or is over.
bool Server::State::ask(Connection& connection) {
  connection.part.clear();
  connection.sent = 0;
  try {
    std::optional<std::string> part = connection.stream.next();
    connection.over = !part;
    connection.part = std::move(part).value_or("");
  } catch (const std::exception&) {
    connection.over = true;
  }
  if (connection.phase == Phase::kSilent && connection.part.empty() && !connection.over &&
      Clock::now() - connection.since > options.limits.longest_silence) {
    connection.part = connection.stream.sign_of_life;
  }
  return connection.over || !connection.part.empty();
}

void Server::State::resume(Connection& connection) {
  connection.phase = Phase::kReplying;
  connection.since = Clock::now();
  MHD_resume_connection(connection.handle);
}

// libmicrohttpd asks for what it can send now.
ssize_t Server::State::read_stream(Connection& connection, char* buffer, size_t most) {
  if (connection.phase == Phase::kDropped) {
    return MHD_CONTENT_READER_END_WITH_ERROR;
  }
  if (connection.sent == connection.part.size() && !connection.over) {
    const bool more = ask(connection);
    connection.since = Clock::now();
    if (!more) {
      connection.phase = Phase::kSilent;
      MHD_suspend_connection(connection.handle);
      return 0;
    }
  }
  const size_t bytes = connection.part.copy(buffer, most, connection.sent);
  connection.sent += bytes;
  return bytes == 0 ? MHD_CONTENT_READER_END_OF_STREAM : static_cast<ssize_t>(bytes);
}

// Called when the headers are complete, for every part of the body, and at its end.
MHD_Result Server::State::receive(MHD_Connection* handle, const char* path, const char* method, const char* data,
                                  size_t* bytes) {
  Connection& connection = connections.at(handle);
  if (!connection.request) {
    Request& request = connection.request.emplace();
    request.method = method;
    request.path = path;
    MHD_get_connection_values(handle, MHD_GET_ARGUMENT_KIND, &add_value, &request.query);
    MHD_get_connection_values(handle, MHD_HEADER_KIND, &add_value, &request.headers);
    std::optional<Reply> refused = options.refusal ? options.refusal(request) : std::nullopt;
    if (!refused && parse_number<size_t>(request.header("Content-Length")).value_or(0) > options.limits.body_bytes) {
      refused = plain(413, fmt::format("the request is too long: {} bytes are allowed", options.limits.body_bytes));
    }
    return refused ? send(connection, *std::move(refused), true) : MHD_YES;
  }
  if (*bytes > 0) {
    std::string& body = connection.request->body;
    if (body.size() + *bytes > options.limits.body_bytes) {
      return MHD_NO;  // its length was not given before: the connection is closed
    }
    body.append(data, *bytes);
    *bytes = 0;
    return MHD_YES;
  }
  return send(connection, answer(*connection.request), false);
}

Reply Server::State::answer(const Request& request) {
  const auto route = options.routes.find(request.path);
  if (route == options.routes.end()) {
    std::string all;
    for (const auto& [path, handler] : options.routes) {
      all += (all.empty() ? "" : ", ") + path;
    }
    return plain(404, "there is only " + all);
  }
  try {
    return route->second(request);
  } catch (const std::exception& error) {
    return plain(500, error.what());
  }
}

MHD_Result Server::State::send(Connection& connection, Reply reply, bool close) {
  connection.phase = Phase::kReplying;
  connection.since = Clock::now();
  MHD_Response* response = nullptr;
  if (reply.stream.next) {
    connection.stream = std::move(reply.stream);
    response = MHD_create_response_from_callback(
        MHD_SIZE_UNKNOWN, kPart,
        [](void* reading, uint64_t, char* buffer, size_t most) {
          return static_cast<Connection*>(reading)->state->read_stream(*static_cast<Connection*>(reading), buffer,
                                                                       most);
        },
        &connection, nullptr);
  } else {
    const Text text = reply.body ? reply.body : std::make_shared<const std::string>();
    response = MHD_create_response_from_buffer_with_free_callback_cls(
        text->size(), const_cast<char*>(text->data()), [](void* shared) { delete static_cast<Text*>(shared); },
        new Text(text));
  }
  if (response == nullptr) {
    return MHD_NO;
  }
  reply.headers.insert(reply.headers.end(), options.headers.begin(), options.headers.end());
  if (close) {
    reply.headers.emplace_back("Connection", "close");
  }
  for (const auto& [name, value] : reply.headers) {
    MHD_add_response_header(response, name.c_str(), value.c_str());
  }
  const MHD_Result result = MHD_queue_response(connection.handle, static_cast<unsigned>(reply.status), response);
  MHD_destroy_response(response);  // it lives until it is sent
  return result;
}

Server::Server(Options options) : state_(std::make_unique<State>(std::move(options))) { state_->start(); }
Server::~Server() = default;

int Server::port() const { return state_->port; }
void Server::wake() { eventfd_write(state_->waker.get(), 1); }

}  // namespace tandem::http
