// The score command: its output for files, and its errors for files that do not match.
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>

namespace tandem::text {
namespace {

struct Done {
  int status;
  std::string output;  // standard output and error
};

class ScoreCommand : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ =
        std::filesystem::temp_directory_path() /
        ("tandem_score_" + std::to_string(getpid()) + ::testing::UnitTest::GetInstance()->current_test_info()->name());
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string write(const std::string& name, const std::string& text) {
    std::ofstream(folder_ / name, std::ios::binary) << text;
    return (folder_ / name).string();
  }

  static Done score(const std::string& arguments) {
    FILE* pipe = popen((std::string(TANDEM_BINARY) + " score " + arguments + " 2>&1").c_str(), "r");
    EXPECT_NE(pipe, nullptr);
    std::string output;
    std::array<char, 4096> buffer{};
    while (const size_t read = std::fread(buffer.data(), 1, buffer.size(), pipe)) {
      output.append(buffer.data(), read);
    }
    return {pclose(pipe), output};
  }

  std::filesystem::path folder_;
};

TEST_F(ScoreCommand, PrintsOneAlignedLineAMetric) {
  const std::string hyp =
      write("hyp", "The cat sat on the mat.\nIt costs 3.5% of $1,000-2 (approx.)\nHallo &amp; Welt!\n");
  const std::string ref =
      write("ref", "The cat sat on a mat.\r\nIt costs 3.5% of $1,000-2, approximately.\nHallo & Welt!");
  const Done done = score("--hyp " + hyp + " --ref " + ref + " --metric bleu,chrf,ter --width 9");
  EXPECT_EQ(done.status, 0);
  EXPECT_EQ(done.output,
            "        BLEU|nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:2.6.0+tandem = 66.367033616 "
            "83.3/71.4/61.1/53.3 (BP = 1.000 ratio = 1.043 hyp_len = 24 ref_len = 23)\n"
            "      chrF2|nrefs:1|case:mixed|eff:yes|nc:6|nw:0|space:no|version:2.6.0+tandem = 67.942500587\n"
            "TER|nrefs:1|case:lc|tok:tercom|norm:no|punct:yes|asian:no|version:2.6.0+tandem = 26.666666667\n");
  EXPECT_EQ(score("--hyp - --ref " + ref + " --metric chrf -b --width 3 < " + hyp).output, "67.943\n");
  EXPECT_EQ(score("--hyp " + hyp + " --ref " + ref + " --metric ter --sentence-level -b").output,
            "16.67\n33.33\n33.33\n");
}

TEST_F(ScoreCommand, ConfidenceIsPrintedAsSacrebleuDoes) {
  const std::string hyp = write("hyp", "a b c d e f\n"), ref = write("ref", "a b c x e f\n");
  const std::string files = "--hyp " + hyp + " --ref " + ref + " --metric bleu --confidence";
  EXPECT_EQ(score(files).output,
            "BLEU|nrefs:1|bs:1000|seed:12345|case:mixed|eff:no|tok:13a|smooth:exp|version:2.6.0+tandem = 37.99 "
            "(μ = 37.99 ± 0.00) 83.3/60.0/25.0/16.7 (BP = 1.000 ratio = 1.000 hyp_len = 6 ref_len = 6)\n");
  EXPECT_EQ(score(files + " -b").output, "37.99 (μ = 37.99 ± 0.00)\n");
  const std::string json = score(files + " --format json").output;
  for (const char* part : {"\"confidence_mean\": 37.99", "\"confidence_var\": 0.0", "\"confidence_low\": 37.99",
                           "\"confidence_high\": 37.99", "\"bs\": \"1000\""}) {
    EXPECT_NE(json.find(part), std::string::npos) << part << " in " << json;
  }
  EXPECT_NE(score(files + " --sentence-level").status, 0);
}

TEST_F(ScoreCommand, JsonHasThePartsOfTheSignature) {
  const std::string hyp = write("hyp", "a b c d e f\n"), ref = write("ref", "a b c x e f\n");
  const Done done = score("--hyp " + hyp + " --ref " + ref + " " + ref + " --metric bleu --format json --width 6");
  EXPECT_EQ(done.status, 0);
  EXPECT_NE(done.output.find("\"score\": 37.991784,"), std::string::npos) << done.output;
  EXPECT_NE(done.output.find("\"nrefs\": \"2\""), std::string::npos) << done.output;
}

TEST_F(ScoreCommand, ExplainsWhatDoesNotFit) {
  const std::string two = write("two", "a\nb\n"), three = write("three", "a\nb\nc\n"), empty = write("empty", "");
  const auto fails = [](const std::string& arguments, const std::string& part) {
    const Done done = score(arguments);
    EXPECT_NE(done.status, 0) << arguments;
    EXPECT_NE(done.output.find(part), std::string::npos) << done.output;
  };
  fails("--hyp " + two + " --ref " + three, two + " has 2 lines but " + three + " has 3");
  fails("--hyp " + two + " --ref " + two + " " + three, three + " has 3");
  fails("--hyp " + empty + " --ref " + empty, "is empty");
  fails("--hyp " + two + " --ref " + two + " --metric rouge", "unknown metric 'rouge'");
  fails("--hyp - --ref - < " + two, "more than once");
  fails("--hyp " + two + " --ref " + two + ".missing", ".missing");
  fails("--hyp " + two + " --ref " + two + " --width 99", "--width");
  fails("--hyp " + two, "--ref");
}

}  // namespace
}  // namespace tandem::text
