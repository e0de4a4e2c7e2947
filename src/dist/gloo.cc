#include <algorithm>
#include <atomic>
#include <deque>
#include <mutex>
#include <utility>

#include "core/file.h"
#include "core/stopwatch.h"
#include "dist/background.h"
#include "dist/gloo_calls.h"

namespace tandem::dist {
namespace {

const char* name_of(Collective::Kind kind) {
  constexpr const char* kNames[] = {"all-reduce", "rounded all-reduce", "reduce-scatter",
                                    "all-gather", "broadcast",          "barrier"};
  return kNames[static_cast<int>(kind)];
}

// A 16-bit hash of the call, to detect ranks that make different calls.
uint64_t tag_of(const Collective& call) {
  Checksum sum;
  sum.add(fmt::format("{} {} {} {}", name_of(call.kind), name_of(call.buffer.dtype), call.buffer.size(), call.root));
  return sum.value() >> 48;
}

bool share_memory(const View& a, const View& b) {
  const auto begin = [](const View& view) { return reinterpret_cast<uintptr_t>(view.data); };
  const auto end = [&](const View& view) { return begin(view) + view.size() * size_of(view.dtype); };
  return begin(a) < end(b) && begin(b) < end(a);
}

bool share_memory(const Collective& a, const Collective& b) {
  return share_memory(a.buffer, b.buffer) || share_memory(a.buffer, b.sums) || share_memory(a.sums, b.buffer) ||
         share_memory(a.sums, b.sums);
}

constexpr ptrdiff_t kAhead = 2;  // calls that may begin before an earlier one is done

class GlooCommunicator final : public Communicator {
 public:
  GlooCommunicator(gloo::rendezvous::Store& store, int rank, int size, const std::string& address,
                   std::chrono::milliseconds timeout, const std::string& secret) {
    queue_.add([&] { mesh_ = std::make_unique<GlooMesh>(store, rank, size, address, timeout, secret); }).get();
  }

  ~GlooCommunicator() override {
    if (!queue_.idle()) {
      mesh_->abort(fmt::format("rank {} closed its communicator while work was under way", rank()));
    }
  }

  int rank() const override { return mesh_->rank(); }
  int size() const override { return mesh_->size(); }

  // A slot has 24 bits of call number, 16 of tag and 24 of piece index; call number 0 is the mesh's own.
  Handle start(const Collective& wanted) override {
    Collective call = wanted;
    if (call.kind == Kind::barrier) {  // a sum that is thrown away
      call.buffer = host_view(&nothing_, 1, 1);
    }
    require(call.root >= 0 && call.root < size(), "broadcast from rank {} of {}", call.root, size());
    require_communicable(call);
    const uint64_t tag = tag_of(call) << 24;
    const uint64_t number = 2 * (calls_++ % ((uint64_t{1} << 23) - 1)) + 1;
    auto work = make_gloo_call(*mesh_, staging_, call, number << 40 | tag, (number + 1) << 40 | tag);
    {
      const std::lock_guard lock(mutex_);
      waiting_.push_back(std::make_shared<Call>(Call{call, std::move(work)}));
    }
    return Handle(queue_.add([this, call] {
      const Stopwatch time;
      const auto first = take_first();  // destroyed at the end of this scope: then the buffer is the caller's again
      mesh_->run(fmt::format("{} of {} {}", name_of(call.kind), call.buffer.size(), name_of(call.buffer.dtype)), [&] {
        first->begin();
        first->work->finish([&] { begin_after(*first); });
      });
      if (call.kind != Kind::broadcast && call.kind != Kind::barrier) {
        transfer_seconds_ += time.seconds();
      }
    }));
  }

  void abort(const std::string& reason) override {
    mesh_->abort(reason);
    queue_.add([this] { mesh_->run("abort", [] {}); });  // sends the reason to the peers
  }

  Traffic traffic() const override { return mesh_->traffic(); }
  double transfer_seconds() const override { return transfer_seconds_; }

 private:
  struct Call {
    Collective call;
    std::unique_ptr<GlooCall> work;
    bool begun = false;
    void begin() {
      if (!std::exchange(begun, true)) {
        work->begin();
      }
    }
  };

  std::shared_ptr<Call> take_first() {
    const std::lock_guard lock(mutex_);
    std::shared_ptr<Call> first = std::move(waiting_.front());
    waiting_.pop_front();
    return first;
  }

  // Begins the calls after `first` that work on other memory than all calls before them.
  void begin_after(const Call& first) {
    std::vector<std::shared_ptr<Call>> next;
    {
      const std::lock_guard lock(mutex_);
      next.assign(waiting_.begin(), waiting_.begin() + std::min<ptrdiff_t>(kAhead, std::ssize(waiting_)));
    }
    for (auto call = next.begin(); call != next.end(); ++call) {
      const auto shared = [&](const auto& earlier) { return share_memory(earlier->call, (*call)->call); };
      if (share_memory(first.call, (*call)->call) || std::any_of(next.begin(), call, shared)) {
        return;
      }
      (*call)->begin();
    }
  }

  std::unique_ptr<GlooMesh> mesh_;  // used on the queue's thread, except for the functions that any thread may call
  GlooStaging staging_;             // used on the queue's thread
  int32_t nothing_ = 0;             // likewise
  uint64_t calls_ = 0;
  std::atomic<double> transfer_seconds_ = 0;
  std::mutex mutex_;
  std::deque<std::shared_ptr<Call>> waiting_;  // unfinished calls but for the first, in the order of the calls
  WorkQueue queue_;                            // last, so that it ends first
};

}  // namespace

std::unique_ptr<Communicator> make_gloo_communicator(gloo::rendezvous::Store& store, int rank, int size,
                                                     const std::string& address, std::chrono::milliseconds timeout,
                                                     const std::string& secret) {
  require(size >= 1 && rank >= 0 && rank < size, "rank {} of {} ranks", rank, size);
  require(timeout.count() > 0, "the timeout between ranks is {} ms, it must be positive", timeout.count());
  return std::make_unique<GlooCommunicator>(store, rank, size, address, timeout, secret);
}

}  // namespace tandem::dist
