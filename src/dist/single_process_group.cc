#include <mutex>

#include "core/error.h"
#include "dist/process_group.h"

namespace tandem::dist {
namespace {

class SingleProcessGroup final : public ProcessGroup {
 public:
  SingleProcessGroup(const World& world, const Identity& identity) {
    world_ = world;
    infos_ = {{.rank = 0, .node = 0, .host = world.host, .address = "", .interface = "", .identity = identity}};
    communicators_.push_back(make_single_communicator());
  }

  Communicator& communicator() override { return *communicators_.front(); }

  Communicator& add_communicator(const std::string& name, const std::vector<int>& ranks) override {
    require(ranks == std::vector<int>{0}, "communicator '{}' has ranks that a process group of one does not have",
            name);
    return *communicators_.emplace_back(make_single_communicator());
  }

  std::vector<std::string> gather(const std::string& text) override { return {text}; }

  void on_failure(std::function<void(const std::string&)> action) override {
    std::unique_lock lock(mutex_);
    if (failure_.empty()) {
      actions_.push_back(std::move(action));
      return;
    }
    const std::string reason = failure_;
    lock.unlock();
    action(reason);
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

std::unique_ptr<ProcessGroup> make_single_process_group(const Identity& identity, const World& world) {
  return std::make_unique<SingleProcessGroup>(world, identity);
}

}  // namespace tandem::dist
