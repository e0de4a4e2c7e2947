#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <cstdlib>
#include <fstream>
#include <mutex>
#include <random>
#include <thread>

#include "observe/probes/host_probes.h"
#include "temporary_directory.h"

namespace tandem::observe {
namespace {

using testing::memory_directory;
using testing::TemporaryDirectory;

// A made-up /proc and /sys.
class Root {
 public:
  void write(const std::string& name, const std::string& content) const {
    const std::filesystem::path path = directory_ / name;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path, std::ios::binary | std::ios::trunc) << content;
  }
  void interface(const std::string& name, const std::string& state, const std::string& speed) const {
    write("sys/class/net/" + name + "/operstate", state + "\n");
    if (!speed.empty()) {
      write("sys/class/net/" + name + "/speed", speed + "\n");
    }
  }
  // Two headings, then `lines`.
  void devices(const std::string& lines) const { write("proc/net/dev", "Inter-| Receive\n face |bytes\n" + lines); }
  const std::filesystem::path& path() const { return directory_.path(); }

 private:
  TemporaryDirectory directory_{memory_directory()};
};

Record second_sample(const Probe& probe, const std::function<void()>& between) {
  Record first{.kind = "probe"}, second{.kind = "probe"};
  probe(first, 0);
  between();
  probe(second, 2);
  return second;
}

TEST(Probes, cpu_counts_busy_ticks) {
  const Root root;
  root.write("proc/stat", "cpu  100 0 100 800 0 0 0 0 50 0\ncpu0 1 2 3\ncpu1 1 2 3\nintr 5\n");
  root.write("proc/loadavg", "1.25 1.00 0.50 1/100 4242\n");
  const Probe probe = make_cpu_probe(root.path());
  const Record record =
      second_sample(probe, [&] { root.write("proc/stat", "cpu  150 0 125 850 50 25 0 0 70 0\ncpu0 1\ncpu1 1\n"); });
  EXPECT_DOUBLE_EQ(*record.number("cpu_busy"), 0.5);  // 200 ticks, of which 100 idle or waiting for disks
  EXPECT_EQ(record.number("cpu_cores"), 2);
  EXPECT_EQ(record.number("load"), 1.25);
}

TEST(Probes, memory) {
  const Root root;
  root.write("proc/meminfo", "MemTotal:       1000 kB\nMemFree: 10 kB\nMemAvailable:    250 kB\n");
  Record record{.kind = "probe"};
  make_memory_probe(root.path())(record, 0);
  EXPECT_EQ(record.number("memory_total_bytes"), 1024000);
  EXPECT_EQ(record.number("memory_available_bytes"), 256000);
  EXPECT_EQ(record.number("memory_used_bytes"), 768000);
}

TEST(Probes, process_with_a_name_that_tries_to_confuse) {
  const Root root;
  const auto stat = [](const std::string& user) {
    return "7 (a) b (\n) 1 2) S 1 2 3 4 5 6 7 8 9 10 " + user + " 50 0 0 20 0 12 0 99 4096 1000 18446744073709551615\n";
  };
  root.write("proc/self/stat", stat("100"));
  root.write("proc/self/io", "rchar: 5\nwrite_bytes: 1000\n");
  const Probe probe = make_process_probe(root.path());
  const Record record = second_sample(probe, [&] {
    root.write("proc/self/stat", stat("150"));
    root.write("proc/self/io", "rchar: 5\nwrite_bytes: 5000\n");
  });
  const double tick = 1.0 / static_cast<double>(sysconf(_SC_CLK_TCK));
  EXPECT_NEAR(*record.number("process_cpu_seconds"), 50 * tick, 1e-9);
  EXPECT_EQ(record.number("process_threads"), 12);
  EXPECT_EQ(record.number("process_memory_bytes"), 1000.0 * static_cast<double>(sysconf(_SC_PAGESIZE)));
  EXPECT_EQ(record.number("process_written_bytes"), 4000);
}

TEST(Probes, disk_space_and_writes_of_its_device) {
  const Root root;
  struct stat status {};
  ASSERT_EQ(stat(root.path().c_str(), &status), 0);
  const std::string device = std::to_string(major(status.st_dev)) + " " + std::to_string(minor(status.st_dev));
  root.write("proc/diskstats", " 7 0 loop0 1 1 1 1 1 1 1 1\n " + device + " vda 1 2 3 4 5 6 100 8 9\n");
  const Probe probe = make_disk_probe(root.path(), root.path());
  const Record record =
      second_sample(probe, [&] { root.write("proc/diskstats", " " + device + " vda 1 2 3 4 5 6 300 8 9\n"); });
  EXPECT_EQ(record.number("disk_written_bytes"), 200 * 512);
  EXPECT_GT(*record.number("disk_total_bytes"), 0);
  EXPECT_LE(*record.number("disk_free_bytes"), *record.number("disk_total_bytes"));
}

TEST(Probes, network_of_what_is_up_and_has_an_address) {
  const Root root;
  root.write("proc/net/route", "Iface Destination\neth0 00000000 0\nveth1 0 0\ndown0 0 0\n");
  root.write("proc/net/if_inet6", "00000000000000000000000000000001 01 80 10 80       lo\n");
  root.interface("eth0", "up", "100");
  root.interface("veth1", "up", "-1");
  root.interface("lo", "unknown", "");
  root.interface("down0", "down", "1000");
  root.interface("bare0", "up", "1000");
  const std::string others = "down0: 0 0 0 0 0 0 0 0 0 0 0 0\nbare0: 0 0 0 0 0 0 0 0 0 0 0 0\n";
  root.devices("  eth0: 1000 10 0 1 0 0 0 0 2000 20 0 2 0 0 0 0\nveth1:5 1 0 0 0 0 0 0 6 1 0 0 0 0 0 0\n" + others);
  const Probe probe = make_network_probe(root.path(), "eth0");
  const Record record = second_sample(probe, [&] {
    root.devices("  eth0: 26000 30 0 4 0 0 0 0 4000 60 0 2 0 0 0 0\nveth1:9 1 0 0 0 0 0 0 6 1 0 0 0 0 0 0\n" + others);
  });
  for (const std::string prefix : {"network_", "net.eth0."}) {
    EXPECT_EQ(record.number(prefix + "received_bytes"), 25000);
    EXPECT_EQ(record.number(prefix + "received_packets"), 20);
    EXPECT_EQ(record.number(prefix + "received_dropped"), 3);
    EXPECT_EQ(record.number(prefix + "sent_bytes"), 2000);
    EXPECT_EQ(record.number(prefix + "sent_packets"), 40);
    EXPECT_EQ(record.number(prefix + "sent_dropped"), 0);
    EXPECT_EQ(record.number(prefix + "link_bits_per_second"), 100e6);
  }
  EXPECT_EQ(record.number("net.veth1.received_bytes"), 4);
  EXPECT_FALSE(record.number("net.veth1.link_bits_per_second"));
  EXPECT_FALSE(record.number("net.down0.received_bytes"));
  EXPECT_FALSE(record.number("net.bare0.received_bytes"));
}

TEST(Probes, counter_that_goes_back_is_left_out_once) {
  Counter counter;
  EXPECT_FALSE(counter.since(5));
  EXPECT_EQ(counter.since(9), 4);
  EXPECT_FALSE(counter.since(2));
  EXPECT_EQ(counter.since(3), 1);
}

TEST(Probes, hostile_files_give_no_fields_or_finite_ones) {
  const char* names[] = {"proc/stat",
                         "proc/loadavg",
                         "proc/meminfo",
                         "proc/self/stat",
                         "proc/self/io",
                         "proc/diskstats",
                         "proc/net/dev",
                         "proc/net/route",
                         "proc/net/if_inet6",
                         "sys/class/net/eth0/speed",
                         "sys/class/net/eth0/operstate"};
  const std::string pieces[] = {"cpu ",
                                "eth0:",
                                "18446744073709551615 ",
                                "-1 ",
                                "1e999 ",
                                "nan ",
                                "\n",
                                ")",
                                "(",
                                "MemTotal: ",
                                "MemAvailable: ",
                                "write_bytes: ",
                                "../../../etc/passwd: ",
                                " ",
                                "\t",
                                std::string(1, '\0'),
                                "up",
                                "1 ",
                                "99 ",
                                std::string(300, '9') + " ",
                                "/:",
                                ": ",
                                "inf "};
  for (uint64_t seed = 0; seed < 200; ++seed) {
    std::mt19937_64 random(seed);
    const Root root;
    ProbeOptions options{.run = root.path() / "nowhere", .interface = "eth0", .root = root.path()};
    std::unique_ptr<ProbeSet> probes;
    for (int round = 0; round < 4; ++round) {
      for (const char* name : names) {
        std::string content;
        for (size_t i = random() % 60; i > 0; --i) {
          content += pieces[random() % std::size(pieces)];
        }
        root.write(name, content);
      }
      if (!probes) {
        probes = std::make_unique<ProbeSet>(options);
        continue;
      }
      for (const auto& [name, value] : probes->sample().fields) {
        if (const auto* number = std::get_if<double>(&value)) {
          EXPECT_TRUE(std::isfinite(*number) && *number >= 0) << name << " " << *number;
        }
      }
    }
  }
}

TEST(Probes, nothing_there_is_no_error) {
  const Root root;
  ProbeSet probes({.run = "/no/such/place", .gpu = "0", .root = root.path() / "none", .nvml = "libno-such-nvml.so"});
  const Record record = probes.sample();
  EXPECT_EQ(record.kind, "probe");
  EXPECT_TRUE(record.number("seconds"));
  EXPECT_EQ(record.fields.size(), 2U);  // and the probes' own cost
}

class Setting {
 public:
  Setting(const char* name, const char* value) : name_(name) { setenv(name, value, 1); }
  ~Setting() { unsetenv(name_); }
  Setting(const Setting&) = delete;
  Setting& operator=(const Setting&) = delete;

 private:
  const char* name_;
};

TEST(Probes, gpu_by_number_bus_and_uuid) {
  for (const char* gpu : {"0", "0000:65:00.0", "GPU-1234"}) {
    const Probe probe = make_gpu_probe(gpu, TANDEM_FAKE_NVML);
    ASSERT_TRUE(probe) << gpu;
    const Record record = second_sample(probe, [] { std::this_thread::sleep_for(std::chrono::milliseconds(1)); });
    EXPECT_TRUE(record.number("gpu_power_watts"));
    EXPECT_EQ(record.number("gpu_power_limit_watts"), 250);
    EXPECT_EQ(record.number("gpu_sm_clock_mhz"), 1380);
    EXPECT_EQ(record.number("gpu_memory_clock_mhz"), 877);
    EXPECT_EQ(record.number("gpu_temperature_celsius"), 41);
    EXPECT_EQ(record.number("gpu_memory_used_bytes"), 1e10);
    EXPECT_EQ(record.number("gpu_memory_total_bytes"), 1.6e10);
    EXPECT_EQ(record.number("gpu_utilisation_percent"), 100);
    EXPECT_EQ(record.number("gpu_performance_state"), 2);
    EXPECT_EQ(*record.text("gpu_name"), "Fake V100");
    EXPECT_EQ(*record.text("gpu_uuid"), "GPU-1234");
    EXPECT_EQ(record.number("gpu_throttled_seconds"), 0);
    EXPECT_EQ(record.text("gpu_throttle"), nullptr);
  }
  EXPECT_FALSE(make_gpu_probe("1", TANDEM_FAKE_NVML));
  EXPECT_FALSE(make_gpu_probe("GPU-other", TANDEM_FAKE_NVML));
  EXPECT_FALSE(make_gpu_probe("", TANDEM_FAKE_NVML));
  EXPECT_FALSE(make_gpu_probe("0", "libno-such-nvml.so"));
  EXPECT_FALSE(make_gpu_probe("0", "libc.so.6"));  // a library, but not NVML
}

TEST(Probes, gpu_power_is_the_mean_of_the_stretch) {
  ProbeSet probes({.gpu = "0", .host = false, .nvml = TANDEM_FAKE_NVML});
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  const Record record = probes.sample();
  EXPECT_NEAR(*record.number("gpu_power_watts"), 45, 4.5);  // energy over time
  EXPECT_NE(record.text("gpu_name"), nullptr);
  EXPECT_EQ(probes.sample().text("gpu_name"), nullptr) << "once is enough";
}

TEST(Probes, gpu_functions_that_fail_leave_their_field_out) {
  const std::pair<const char*, const char*> lost[] = {
      {"nvmlDeviceGetEnforcedPowerLimit", "gpu_power_limit_watts"},
      {"nvmlDeviceGetClockInfo", "gpu_sm_clock_mhz"},
      {"nvmlDeviceGetTemperature", "gpu_temperature_celsius"},
      {"nvmlDeviceGetMemoryInfo", "gpu_memory_used_bytes"},
      {"nvmlDeviceGetUtilizationRates", "gpu_utilisation_percent"},
      {"nvmlDeviceGetCurrentClocksThrottleReasons", "gpu_throttled_seconds"},
      {"nvmlDeviceGetPerformanceState", "gpu_performance_state"}};
  for (const auto& [function, field] : lost) {
    const Setting fail("FAKE_NVML_FAIL", function);
    const Probe probe = make_gpu_probe("0", TANDEM_FAKE_NVML);
    ASSERT_TRUE(probe);
    const Record record = second_sample(probe, [] {});
    EXPECT_FALSE(record.number(field)) << field;
    EXPECT_GE(record.fields.size(), 8U);
  }
  const Setting fail("FAKE_NVML_FAIL", "nvmlDeviceGetTotalEnergyConsumption");
  EXPECT_EQ(second_sample(make_gpu_probe("0", TANDEM_FAKE_NVML), [] {}).number("gpu_power_watts"), 45)
      << "without an energy counter the moment's power stands in";
}

TEST(Probes, gpu_that_does_not_start_is_no_gpu) {
  const Setting fail("FAKE_NVML_FAIL", "nvmlInit_v2");
  EXPECT_FALSE(make_gpu_probe("0", TANDEM_FAKE_NVML));
}

TEST(Probes, throttling_by_name) {
  const Setting bits("FAKE_NVML_THROTTLE", "68");  // power cap and hardware thermal
  const Probe probe = make_gpu_probe("0", TANDEM_FAKE_NVML);
  const Record record = second_sample(probe, [] {});
  EXPECT_EQ(*record.text("gpu_throttle"), "power_cap,hardware_thermal");
  EXPECT_EQ(record.number("gpu_throttled_seconds"), 2);
  EXPECT_EQ(record.number("gpu_capped_seconds"), 2);
  const Setting cap("FAKE_NVML_THROTTLE", "4");
  const Record capped = second_sample(probe, [] {});
  EXPECT_EQ(*capped.text("gpu_throttle"), "power_cap");
  EXPECT_EQ(capped.number("gpu_throttled_seconds"), 0) << "at its power cap a GPU does all it may";
  EXPECT_EQ(capped.number("gpu_capped_seconds"), 2);
}

// On the real machine, far more often than a run asks: the thread keeps itself below half a percent of a core.
// Asked for a sample every millisecond, they wait until the last one has cost no more than its share. A record holds
// what the sample before it has cost; the first one comes without such a wait, the last one's is cut short by the end.
TEST(Probes, cost_at_most_half_a_percent_of_a_core) {
  const TemporaryDirectory directory;
  std::mutex mutex;
  std::condition_variable written;
  std::vector<Record> records;
  {
    const HostProbes probes(
        {.period = 0.001, .run = directory.path(), .interface = "lo", .gpu = "0", .nvml = TANDEM_FAKE_NVML},
        [&](Record record) {
          const std::lock_guard lock(mutex);
          records.push_back(std::move(record));
          written.notify_one();
        });
    std::unique_lock lock(mutex);
    ASSERT_TRUE(written.wait_for(lock, std::chrono::seconds(60), [&] { return records.size() >= 8; }));
  }
  std::vector<double> costs;
  double cost = 0, seconds = 0;
  for (size_t i = 1; i + 1 < records.size(); ++i) {
    costs.push_back(*records[i].number("probe_cpu_seconds"));
    cost += costs.back();
    seconds += *records[i].number("seconds");
  }
  std::ranges::sort(costs);
  const double median = costs[costs.size() / 2];
  RecordProperty("microseconds_a_sample", static_cast<int>(1e6 * median));
  EXPECT_GT(cost, 0);
  EXPECT_LE(cost / seconds, 0.006);  // 0.005, and what one waking up costs more than the one before
  EXPECT_LE(median, 0.005 * 5) << "at the usual period of 5 s";
  EXPECT_GT(*records.back().number("cpu_cores"), 0);
  EXPECT_GT(*records.back().number("process_memory_bytes"), 1e6);
  EXPECT_GT(*records.back().number("disk_free_bytes"), 0);
}

TEST(Probes, a_short_run_gets_a_record_and_the_end_is_quick) {
  std::atomic<int> records = 0;
  const auto begin = std::chrono::steady_clock::now();
  {
    const HostProbes probes({.run = "."}, [&](Record) { ++records; });
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
  EXPECT_EQ(records, 1);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(2));
}

}  // namespace
}  // namespace tandem::observe
