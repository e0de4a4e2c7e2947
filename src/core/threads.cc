#include "core/threads.h"

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

#include "core/error.h"

namespace tandem::inline core {

namespace {

// Longer than the gap between two loops of a step, shorter than what a sleeping thread costs others.
constexpr auto kSpin = std::chrono::microseconds(50);

int usable_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  return sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
}

void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

// Returns as soon as done() is true, or after kSpin.
template <class Done>
void spin_until(const Done& done) {
  const auto end = std::chrono::steady_clock::now() + kSpin;
  while (!done()) {
    if (std::chrono::steady_clock::now() >= end) {
      return;
    }
    for (int i = 0; i < 16; ++i) {
      relax();
    }
  }
}

// One loop, on its caller's stack.
struct Loop {
  void (*call)(const void* body, int64_t piece);
  const void* body;
  int64_t pieces;
  std::atomic<int64_t> next{0};
  std::atomic<bool> failed{false};
  std::exception_ptr error{};  // owned by the thread that set `failed` until all are done

  void run_pieces() {
    for (int64_t i = next++; i < pieces; i = next++) {
      try {
        call(body, i);
      } catch (...) {
        if (!failed.exchange(true)) {
          error = std::current_exception();
        }
      }
    }
  }
};

}  // namespace

class Threads::Pool {
 public:
  explicit Pool(int workers) : workers_(workers) {}

  ~Pool() {
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
      ++number_;
    }
    work_.notify_all();
    for (std::thread& thread : threads_) {
      thread.join();
    }
  }

  void run(Loop& loop) {
    if (taken_.exchange(true)) {
      return loop.run_pieces();
    }
    start();
    open(loop);
    loop.run_pieces();
    close();
    taken_ = false;
  }

 private:
  void start() {
    try {
      while (static_cast<int>(threads_.size()) < workers_) {
        threads_.emplace_back([this] { work(); });
      }
    } catch (const std::system_error& error) {
      taken_ = false;
      fail("cannot start {} threads ({}); set a lower number of threads", workers_, error.what());
    }
  }

  void open(Loop& loop) {
    int asleep = 0;
    {
      const std::lock_guard lock(mutex_);
      loop_ = &loop;
      ++number_;
      asleep = asleep_;
    }
    const int64_t wanted = std::min<int64_t>(workers_, loop.pieces - 1);
    for (int64_t awake = workers_ - asleep; awake < wanted; ++awake) {
      work_.notify_one();
    }
  }

  // No thread joins the loop any more; those inside finish their piece.
  void close() {
    {
      const std::lock_guard lock(mutex_);
      loop_ = nullptr;
    }
    spin_until([&] { return inside_ == 0; });
    if (inside_ != 0) {
      std::unique_lock lock(mutex_);
      done_.wait(lock, [&] { return inside_ == 0; });
    }
  }

  void work() {
    uint64_t seen = 0;
    for (;;) {
      spin_until([&] { return number_ != seen; });
      std::unique_lock lock(mutex_);
      ++asleep_;
      work_.wait(lock, [&] { return number_ != seen; });
      --asleep_;
      seen = number_;
      if (stop_) {
        return;
      }
      if (loop_ == nullptr) {
        continue;
      }
      Loop& loop = *loop_;
      ++inside_;
      lock.unlock();
      loop.run_pieces();
      lock.lock();
      if (--inside_ == 0) {
        done_.notify_one();
      }
    }
  }

  const int workers_;
  std::atomic<bool> taken_{false};    // whether a caller uses the pool
  std::vector<std::thread> threads_;  // all but the caller
  std::mutex mutex_;                  // guards the members below; spinning threads also read the two atomics without it
  std::condition_variable work_, done_;
  Loop* loop_ = nullptr;
  std::atomic<uint64_t> number_{0};  // counts the loops so far
  std::atomic<int> inside_{0};       // threads inside loop_, without its caller
  int asleep_ = 0;
  bool stop_ = false;
};

Threads::Threads(int count) : count_(count == 0 ? usable_cores() : count) {
  require(count_ >= 1 && count_ <= 1024, "threads must be 1 to 1024 (or 0 for all cores), not {}", count);
  pool_ = std::make_unique<Pool>(count_ - 1);
}

Threads::~Threads() = default;

void Threads::run(int64_t pieces, void (*call)(const void* body, int64_t piece), const void* body) const {
  Loop loop{call, body, pieces};
  pool_->run(loop);
  if (loop.error) {
    std::rethrow_exception(loop.error);
  }
}

}  // namespace tandem::inline core
