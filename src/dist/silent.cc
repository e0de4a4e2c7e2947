#include <algorithm>

#include "core/error.h"
#include "dist/communicator.h"

namespace tandem::dist {
namespace {

class SilentCommunicator final : public Communicator {
 public:
  explicit SilentCommunicator(int size) : size_(size) {}

  int rank() const override { return 0; }
  int size() const override { return size_; }

  Handle start_all_reduce(const View& /*buffer*/) override { return {}; }
  Handle start_rounded_all_reduce(const View& sums, const View& values) override {
    require_communicable(sums, values);
    std::copy_n(values.host<double>(), values.size(), sums.host<float>());
    return {};
  }
  Handle start_reduce_scatter(const View& /*buffer*/) override { return {}; }
  Handle start_all_gather(const View& /*buffer*/) override { return {}; }
  Handle start_broadcast(const View& /*buffer*/, int /*root*/) override { return {}; }
  Handle start_barrier() override { return {}; }
  void abort(const std::string& /*reason*/) override {}
  Traffic traffic() const override { return {}; }

 private:
  int size_;
};

}  // namespace

std::unique_ptr<Communicator> make_silent_communicator(int size) {
  require(size > 0, "a step of {} ranks", size);
  return std::make_unique<SilentCommunicator>(size);
}

}  // namespace tandem::dist
