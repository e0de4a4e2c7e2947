#include <mutex>

#include "core/error.h"
#include "dist/communicator.h"

namespace tandem::dist {
namespace {

class SingleCommunicator final : public Communicator {
 public:
  int rank() const override { return 0; }
  int size() const override { return 1; }

  Handle start_all_reduce(const View& buffer) override { return done(buffer); }
  Handle start_reduce_scatter(const View& buffer) override { return done(buffer); }
  Handle start_all_gather(const View& buffer) override { return done(buffer); }
  Handle start_broadcast(const View& buffer, int root) override {
    require(root == 0, "broadcast from rank {}, but there is only rank 0", root);
    return done(buffer);
  }
  Handle start_barrier() override { return done({}); }

  void abort(const std::string& reason) override {
    const std::lock_guard lock(mutex_);
    failure_ = failure_.empty() ? reason : failure_;
  }
  Traffic traffic() const override { return {}; }

 private:
  Handle done(const View& buffer) {
    require_communicable(buffer);
    const std::lock_guard lock(mutex_);
    require(failure_.empty(), "{}", failure_);
    return {};
  }

  std::mutex mutex_;
  std::string failure_;
};

}  // namespace

std::unique_ptr<Communicator> make_single_communicator() { return std::make_unique<SingleCommunicator>(); }

}  // namespace tandem::dist
