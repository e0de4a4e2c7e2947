#include "dist/guarded_communicator.h"

#include "core/error.h"

namespace tandem::dist {
namespace {

class GuardedCommunicator final : public Communicator {
 public:
  GuardedCommunicator(std::unique_ptr<Communicator> inner, std::function<std::string(const std::string&)> explain)
      : inner_(std::move(inner)), explain_(std::move(explain)) {}

  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  Handle start_all_reduce(const View& buffer) override { return guard(inner_->start_all_reduce(buffer)); }
  Handle start_rounded_all_reduce(const View& sums, const View& values) override {
    return guard(inner_->start_rounded_all_reduce(sums, values));
  }
  Handle start_reduce_scatter(const View& buffer) override { return guard(inner_->start_reduce_scatter(buffer)); }
  Handle start_all_gather(const View& buffer) override { return guard(inner_->start_all_gather(buffer)); }
  Handle start_broadcast(const View& buffer, int root) override { return guard(inner_->start_broadcast(buffer, root)); }
  Handle start_barrier() override { return guard(inner_->start_barrier()); }
  void abort(const std::string& reason) override { inner_->abort(reason); }
  Traffic traffic() const override { return inner_->traffic(); }
  double transfer_seconds() const override { return inner_->transfer_seconds(); }

 private:
  // Runs in the thread that waits for the handle.
  Handle guard(Handle inner) {
    auto shared = std::make_shared<Handle>(std::move(inner));  // std::async needs a copyable function
    return Handle(std::async(std::launch::deferred, [shared, explain = explain_] {
      try {
        shared->wait();
      } catch (const Error& error) {
        fail("{}", explain(error.what()));
      }
    }));
  }

  std::unique_ptr<Communicator> inner_;
  std::function<std::string(const std::string&)> explain_;
};

}  // namespace

std::unique_ptr<Communicator> make_guarded_communicator(std::unique_ptr<Communicator> inner,
                                                        std::function<std::string(const std::string&)> explain) {
  return std::make_unique<GuardedCommunicator>(std::move(inner), std::move(explain));
}

}  // namespace tandem::dist
