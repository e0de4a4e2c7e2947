#include "dist/process_group.h"

#include <fcntl.h>
#include <gloo/rendezvous/store.h>

#include <algorithm>
#include <mutex>
#include <numeric>
#include <utility>

#include "core/error.h"
#include "core/log.h"
#include "dist/heartbeat.h"
#include "dist/rendezvous_server.h"

namespace tandem::dist {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kCauseTime{2000};   // longest time from a failed call to the news of its cause
constexpr milliseconds kSlack{10000};      // so that the server's limits are reached first
constexpr milliseconds kAnswerTime{5000};  // longest time for an answer of the server to arrive

// Gloo's store on top of the rendezvous: the ranks of one communicator exchange their addresses through it.
class GlooStore final : public gloo::rendezvous::Store {
 public:
  // Keys begin with `name`, which is unique in the process group. `timeout` is for waits that give none.
  GlooStore(RendezvousClient& client, std::string name, milliseconds timeout)
      : client_(client), name_(std::move(name)), timeout_(timeout) {}

  void set(const std::string& key, const std::vector<char>& data) override {
    client_.ask({"set", name_ + "/" + key, std::string(data.begin(), data.end())}, from_now(timeout_));
  }
  std::vector<char> get(const std::string& key) override {
    const std::string value = ask_for(key, from_now(timeout_));
    return {value.begin(), value.end()};
  }
  void wait(const std::vector<std::string>& keys) override { wait(keys, timeout_); }
  void wait(const std::vector<std::string>& keys, const milliseconds& timeout) override {
    const auto deadline = from_now(timeout);
    for (const std::string& key : keys) {
      ask_for(key, deadline);
    }
  }

 private:
  std::string ask_for(const std::string& key, Deadline deadline) {
    const std::string left = std::to_string(milliseconds_until(deadline));
    const Message answer = client_.ask({"get", name_ + "/" + key, left}, deadline + kAnswerTime);
    require(answer.front() == "value", "{} was not set in time", key);
    return field_of(answer, 1);
  }

  RendezvousClient& client_;
  const std::string name_;
  const milliseconds timeout_;
};

// A communicator whose errors explain what happened to the process group. Gloo notices a closed connection at once but
// knows only a rank's number in its own group; the process group knows the rank, its host and the cause a moment later.
class GuardedCommunicator final : public Communicator {
 public:
  // `explain` takes an error's text and returns the text to throw in its place; it may wait a little.
  using Explain = std::function<std::string(const std::string&)>;
  GuardedCommunicator(std::unique_ptr<Communicator> inner, Explain explain)
      : inner_(std::move(inner)), explain_(std::move(explain)) {}

  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  Handle start(const Collective& call) override {
    // std::async needs a copyable function, which runs in the thread that waits for the handle.
    auto under_way = std::make_shared<Handle>(inner_->start(call));
    return Handle(std::async(std::launch::deferred, [under_way, explain = explain_] {
      try {
        under_way->wait();
      } catch (const Error& error) {
        fail("{}", explain(error.what()));
      }
    }));
  }
  void abort(const std::string& reason) override { inner_->abort(reason); }
  Traffic traffic() const override { return inner_->traffic(); }
  double transfer_seconds() const override { return inner_->transfer_seconds(); }

 private:
  std::unique_ptr<Communicator> inner_;
  Explain explain_;
};

class JoinedProcessGroup final : public ProcessGroup {
 public:
  JoinedProcessGroup(const World& world, const Identity& identity, const ProcessGroupOptions& options)
      : options_(options) {
    world_ = world;
    const auto deadline = from_now(options.join_timeout);
    if (world.rank == 0) {
      start_server();
    }
    const std::string server = "rank 0 at " + world_.rendezvous;
    heartbeat_ = std::make_unique<Heartbeat>(RendezvousClient(world_, "heart", deadline),
                                             describe(world.rank, world.host), server, options);
    guard([&] {
      work_ = std::make_unique<RendezvousClient>(world_, "work", deadline, [this] { return !failure().empty(); });
    });
    heartbeat_->on_failure([this](const std::string& reason) { end_work(reason); });
    join(identity, deadline + kSlack);
    std::vector<int> all(world.size);
    std::iota(all.begin(), all.end(), 0);
    add_communicator("all", all);
  }

  ~JoinedProcessGroup() override {
    heartbeat_.reset();
  }  // first, so that the others learn of it before connections close

  Communicator& communicator() override {
    require(!communicators_.empty(), "this rank has left the process group");
    return *communicators_.front();
  }

  Communicator& add_communicator(const std::string& name, const std::vector<int>& ranks) override {
    const auto own = std::find(ranks.begin(), ranks.end(), rank());
    require(own != ranks.end(), "rank {} does not belong to the communicator '{}' that it makes", rank(), name);
    auto made = guard([&] {
      GlooStore store(*work_, name, options_.join_timeout);
      return make_gloo_communicator(store, static_cast<int>(own - ranks.begin()), static_cast<int>(ranks.size()),
                                    infos_[rank()].address, options_.collective_timeout, world_.secret);
    });
    auto guarded = std::make_unique<GuardedCommunicator>(std::move(made),
                                                         [this](const std::string& text) { return explain(text); });
    const std::lock_guard lock(mutex_);
    communicators_.push_back(std::move(guarded));
    if (const std::string reason = failure(); !reason.empty()) {
      communicators_.back()->abort(reason);
    }
    return *communicators_.back();
  }

  void on_failure(std::function<void(const std::string&)> action) override {
    heartbeat_->on_failure(std::move(action));
  }
  std::string failure() const override { return heartbeat_->failure(); }
  void stop(const std::string& reason) override {
    heartbeat_->stop(fmt::format("{}: {}", describe(rank(), world_.host), reason));
  }

  void leave() override {
    heartbeat_->leave();
    const std::lock_guard lock(mutex_);
    communicators_.clear();
  }

 private:
  void start_server() {
    const Endpoint endpoint = parse_endpoint(world_.rendezvous);
    const bool local = is_loopback(endpoint.hosts.front());
    if (world_.listener >= 0) {
      fcntl(world_.listener, F_SETFD, FD_CLOEXEC);
    }
    Socket listener = world_.listener >= 0 ? Socket(world_.listener) : listen_on(local, endpoint.port);
    world_.rendezvous = fmt::format("127.0.0.1:{}", port_of(listener));
    server_ =
        std::make_unique<RendezvousServer>(std::move(listener), world_.size, world_.secret, world_.hosts, options_);
  }

  void join(const Identity& identity, Deadline deadline) {
    const std::string address = local_address(work_->socket());
    const RankInfo self{rank(), node(), world_.host, address, interface_of(address)};
    const Message group = guard([&] { return work_->ask(to_message({self, identity, size()}), deadline); });
    constexpr int kFields = 4;
    require(static_cast<int>(group.size()) == 1 + kFields * size(), "the list of ranks has {} fields", group.size());
    for (int i = 0; i < size(); ++i) {
      const std::string* fields = &group[1 + kFields * i];
      infos_.push_back({.rank = i,
                        .node = number_of(fields[3], 0, 1 << 30),
                        .host = printable(fields[0], 255),
                        .address = printable(fields[1], 255),
                        .interface = printable(fields[2], 64)});
    }
    heartbeat_->set_rank_0(name_of(0));
    if (world_.started_by == "mpirun") {
      number_nodes();
    }
    guard([&] { require_sound_nodes(); });
    if (rank() == 0) {
      log_group();
    }
  }

  // mpirun's variables describe only a rank's own host.
  void number_nodes() {
    std::vector<std::string> hosts;
    for (RankInfo& member : infos_) {
      const auto known = std::find(hosts.begin(), hosts.end(), member.host);
      member.node = static_cast<int>(known - hosts.begin());
      if (known == hosts.end()) {
        hosts.push_back(member.host);
      }
    }
    world_.node = infos_[rank()].node;
    world_.nodes = static_cast<int>(hosts.size());
  }

  // Each rank was given its own host's number and the number of hosts; the numbers must fit together.
  void require_sound_nodes() const {
    for (const RankInfo& member : infos_) {
      require(member.node < nodes(),
              "{} was given host number {}, but {} was given {} hosts: all launchers must give the same count",
              name_of(member.rank), member.node, name_of(rank()), nodes());
    }
  }

  // Logs the hosts of all ranks, and their network interfaces, in one line.
  void log_group() const {
    std::string hosts;
    for (const RankInfo& member : infos_) {
      const RankInfo* before = member.rank > 0 ? &infos_[member.rank - 1] : nullptr;
      if (before == nullptr || before->host != member.host || before->address != member.address) {
        hosts += fmt::format("{}{} ({} on {})", hosts.empty() ? "" : ", ", member.host, member.address,
                             member.interface.empty() ? "?" : member.interface);
      }
    }
    log::info("{} workers, started by {}: {}", size(), world_.started_by, hosts);
  }

  // Returns the cause of a failed call: the process group's, or `text`, which then ends the other ranks too.
  std::string explain(const std::string& text) {
    std::string reason = heartbeat_->wait_for_failure(kCauseTime);
    if (reason.empty()) {
      stop(text);
      reason = failure();
    }
    return reason.empty() ? text : reason;
  }

  template <class Call>
  auto guard(const Call& call) -> decltype(call()) {
    try {
      return call();
    } catch (const Error& error) {
      fail("{}", explain(error.what()));
    }
  }

  void end_work(const std::string& reason) {
    work_->shut_down();
    const std::lock_guard lock(mutex_);
    for (const auto& communicator : communicators_) {
      communicator->abort(reason);
    }
  }

  const ProcessGroupOptions options_;
  std::unique_ptr<RendezvousServer> server_;  // null except on rank 0
  std::unique_ptr<RendezvousClient> work_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<Communicator>> communicators_;  // the first has all ranks
  std::unique_ptr<Heartbeat> heartbeat_;
};

class SingleProcessGroup final : public ProcessGroup {
 public:
  explicit SingleProcessGroup(const World& world) {
    world_ = world;
    infos_ = {{.rank = 0, .node = 0, .host = world.host, .address = "", .interface = ""}};
    communicators_.push_back(make_single_communicator());
  }

  Communicator& communicator() override { return *communicators_.front(); }

  Communicator& add_communicator(const std::string& name, const std::vector<int>& ranks) override {
    require(ranks == std::vector<int>{0}, "communicator '{}' has ranks that a process group of one does not have",
            name);
    return *communicators_.emplace_back(make_single_communicator());
  }

  void on_failure(std::function<void(const std::string&)> action) override {
    std::unique_lock lock(mutex_);
    if (failure_.empty()) {
      actions_.push_back(std::move(action));
      return;
    }
    lock.unlock();
    action(failure_);  // it never changes again
  }

  std::string failure() const override {
    const std::lock_guard lock(mutex_);
    return failure_;
  }

  void stop(const std::string& reason) override {
    {
      const std::lock_guard lock(mutex_);
      if (!failure_.empty()) {
        return;
      }
      failure_ = reason;
    }
    for (const auto& communicator : communicators_) {
      communicator->abort(reason);
    }
    for (const auto& action : actions_) {
      action(reason);
    }
  }

  void leave() override {}

 private:
  mutable std::mutex mutex_;
  std::string failure_;
  std::vector<std::function<void(const std::string&)>> actions_;
  std::vector<std::unique_ptr<Communicator>> communicators_;
};

}  // namespace

std::string ProcessGroup::name_of(int rank) const { return describe(rank, infos_.at(static_cast<size_t>(rank)).host); }

std::string ProcessGroup::broadcast(const std::string& text, int root) {
  auto size = static_cast<int32_t>(text.size());
  communicator().broadcast(host_view(&size, 1, 1), root);
  std::vector<int32_t> words((static_cast<size_t>(size) + 3) / 4);
  if (rank() == root) {
    std::copy_n(text.data(), text.size(), reinterpret_cast<char*>(words.data()));
  }
  communicator().broadcast(host_view(words.data(), 1, static_cast<int64_t>(words.size())), root);
  return {reinterpret_cast<const char*>(words.data()), static_cast<size_t>(size)};
}

std::vector<std::string> ProcessGroup::gather(const std::string& text) {
  std::vector<std::string> texts;
  for (int root = 0; root < size(); ++root) {
    texts.push_back(broadcast(text, root));
  }
  return texts;
}

std::unique_ptr<ProcessGroup> join_process_group(const World& world, const Identity& identity,
                                                 const ProcessGroupOptions& options) {
  require(world.size >= 1 && world.rank >= 0 && world.rank < world.size, "rank {} of {} ranks", world.rank, world.size);
  if (world.size == 1) {
    return std::make_unique<SingleProcessGroup>(world);
  }
  require(!world.secret.empty(), "the ranks have no secret: set TANDEM_SECRET to the same text for all of them");
  return std::make_unique<JoinedProcessGroup>(world, identity, options);
}

}  // namespace tandem::dist
