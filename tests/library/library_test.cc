// libtandem as a program sees it that has the public headers and the shared library only.
#include <gtest/gtest.h>
#include <signal.h>
#include <tandem/translator.h>

#include <array>
#include <cmath>
#include <fstream>
#include <optional>
#include <thread>

namespace {

namespace fs = std::filesystem;
using tandem::Translation;
using tandem::Translator;
using Results = std::vector<std::vector<Translation>>;

const fs::path kModels = TANDEM_MODELS;

tandem::ModelOptions on_cpu(int threads = 1) {
  tandem::ModelOptions options;
  options.device = "cpu";
  options.threads = threads;
  return options;
}

tandem::TranslateOptions best(int n) {
  tandem::TranslateOptions options;
  options.search.n_best = n;
  return options;
}

std::vector<std::string> lines_of(const fs::path& file) {
  std::ifstream in(file);
  std::vector<std::string> lines;
  for (std::string line; std::getline(in, line);) {
    lines.push_back(line);
  }
  return lines;
}

std::vector<std::string> source_lines() { return lines_of(kModels / "lines.en"); }

// As `tandem translate --n-best` prints it.
std::vector<std::string> printed(const Results& results) {
  std::vector<std::string> lines;
  for (size_t line = 0; line < results.size(); ++line) {
    for (const Translation& one : results[line]) {
      std::array<char, 64> scores{};
      std::snprintf(scores.data(), scores.size(), " ||| %.6f ||| %.6f", one.score, one.log_probability);
      lines.push_back(std::to_string(line + 1) + " ||| " + one.text + scores.data());
    }
  }
  return lines;
}

// More pieces than the models take.
std::string many_words() {
  std::string text;
  for (int i = 0; i < 60; ++i) {
    text += "red ";
  }
  return text;
}

template <class Body>
std::string error_of(const Body& body) {
  try {
    body();
  } catch (const tandem::Error& error) {
    EXPECT_EQ(typeid(error), typeid(tandem::Error)) << "no class that is not exported";
    return error.what();
  }
  return "no error";
}

TEST(Library, TranslatesAsTheProgramDoes) {
  for (const char* name : {"a", "b"}) {
    Translator translator(kModels / name, on_cpu());
    const std::vector<std::string> expected = lines_of(kModels / (std::string(name) + ".out"));
    ASSERT_GT(expected.size(), 100U);
    EXPECT_EQ(printed(translator.translate(source_lines(), best(3))), expected);
  }
}

TEST(Library, TellsWhatItOpened) {
  const Translator translator(kModels / "b", on_cpu());
  const tandem::ModelInfo& info = translator.info();
  EXPECT_EQ(info.step, 90);
  EXPECT_EQ(info.max_pieces, 24);
  EXPECT_EQ(info.source_vocabulary, info.target_vocabulary);
  EXPECT_NE(info.directory.find("step-00000090"), std::string::npos) << info.directory;
  EXPECT_NE(info.precision, tandem::Precision::automatic);
  EXPECT_GT(info.usual_batch, 0);
  EXPECT_FALSE(info.device.empty());
  EXPECT_EQ(std::string(tandem::version()).find_first_not_of("0123456789."), std::string::npos);
}

TEST(Library, TwoModelsWorkInTwoThreads) {
  Translator a(kModels / "a", on_cpu(2)), b(kModels / "b", on_cpu(2));
  const std::vector<std::string> lines = source_lines();
  const auto a_alone = printed(a.translate(lines, best(3))), b_alone = printed(b.translate(lines, best(3)));
  ASSERT_NE(a_alone, b_alone);
  for (int round = 0; round < 3; ++round) {
    std::vector<std::string> a_result, b_result;
    std::thread other([&] { b_result = printed(b.translate(lines, best(3))); });
    a_result = printed(a.translate(lines, best(3)));
    other.join();
    EXPECT_EQ(a_result, a_alone);
    EXPECT_EQ(b_result, b_alone);
  }
}

TEST(Library, ThreadsMayShareAModel) {
  Translator translator(kModels / "a", on_cpu());
  const std::vector<std::string> lines = source_lines();
  const auto alone = printed(translator.translate(lines, best(2)));
  std::array<std::vector<std::string>, 3> results;
  std::vector<std::thread> threads;
  for (std::vector<std::string>& result : results) {
    threads.emplace_back([&] { result = printed(translator.translate(lines, best(2))); });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  for (const std::vector<std::string>& result : results) {
    EXPECT_EQ(result, alone);
  }
}

TEST(Library, OneLineAndPieces) {
  Translator translator(kModels / "a", on_cpu());
  tandem::TranslateOptions options;
  options.pieces = true;
  const Translation one = translator.translate_line(source_lines()[0], options);
  EXPECT_EQ(one.text, translator.translate(source_lines(), best(1))[0][0].text);
  std::string joined;
  for (const std::string& piece : one.pieces) {
    joined += piece;
  }
  for (size_t mark = joined.find("\u2581"); mark != std::string::npos; mark = joined.find("\u2581")) {
    joined.replace(mark, 3, " ");
  }
  EXPECT_EQ(joined, " " + one.text);
  EXPECT_EQ(one.tokens, static_cast<int64_t>(one.pieces.size()) + 1);
  EXPECT_TRUE(translator.translate_line("").text.empty());
}

// A translation's score is what scoring gives for its text, if the text has the same pieces.
TEST(Library, ScoresPairs) {
  Translator translator(kModels / "b", on_cpu());
  const std::vector<std::string> lines = source_lines();
  const Results results = translator.translate(lines, best(3));
  std::vector<std::string> sources, targets;
  std::vector<Translation> translations;
  for (size_t line = 0; line < lines.size(); ++line) {
    for (const Translation& one : results[line]) {
      sources.push_back(lines[line]);
      targets.push_back(one.text);
      translations.push_back(one);
    }
  }
  const std::vector<tandem::PairScore> scores = translator.score(sources, targets);
  ASSERT_EQ(scores.size(), sources.size());
  size_t same = 0;
  for (size_t i = 0; i < scores.size(); ++i) {
    if (scores[i].tokens == translations[i].tokens && !sources[i].empty()) {
      same += std::abs(scores[i].log_probability - translations[i].log_probability) < 1e-3;
      EXPECT_LE(scores[i].correct, scores[i].tokens);
    }
  }
  EXPECT_GT(same * 10, scores.size() * 8) << same << " of " << scores.size();

  const std::vector<std::string> one_source = {sources[0], many_words()}, one_target = {targets[0], "rot"};
  const auto alone = translator.score(one_source, one_target);
  EXPECT_EQ(alone[0].log_probability, scores[0].log_probability) << "no pair depends on the others";
  EXPECT_TRUE(alone[1].too_long());
  EXPECT_NE(error_of([&] { translator.score(sources, one_target); }).find("each source needs its target"),
            std::string::npos);
}

TEST(Library, ScoresAsTheProgramEvaluates) {
  const std::string key = "\"nll\": ";
  double expected = 0;
  for (const std::string& line : lines_of(kModels / "a.json")) {
    if (const size_t place = line.find(key); place != std::string::npos) {
      expected = std::stod(line.substr(place + key.size()));
    }
  }
  Translator translator(kModels / "a", on_cpu());
  double log_probability = 0;
  int64_t tokens = 0;
  for (const tandem::PairScore& pair :
       translator.score(lines_of(kModels / "scored.en"), lines_of(kModels / "lines.de"))) {
    log_probability += pair.log_probability;
    tokens += pair.tokens;
  }
  ASSERT_GT(expected, 0.1);
  EXPECT_NEAR(-log_probability / static_cast<double>(tokens), expected, 1e-9);
}

TEST(Library, EveryFaultIsAnError) {
  EXPECT_NE(error_of([] { Translator(kModels / "none", on_cpu()); }).find("there is no model at"), std::string::npos);
  EXPECT_NE(error_of([] { Translator(kModels / "data", on_cpu()); }).find("prepared data"), std::string::npos);
  tandem::ModelOptions odd = on_cpu();
  odd.device = "toaster";
  EXPECT_NE(error_of([&] { Translator(kModels / "a", odd); }).find("toaster"), std::string::npos);

  Translator translator(kModels / "a", on_cpu());
  const std::vector<std::string> lines = source_lines();
  EXPECT_NE(error_of([&] { translator.translate(lines, best(5)); }).find("beam"), std::string::npos);
  tandem::TranslateOptions throwing;
  throwing.call.on_progress = [](const tandem::CallProgress&) { throw std::out_of_range("the caller's own"); };
  EXPECT_EQ(error_of([&] { translator.translate(lines, throwing); }), "the caller's own");
  throwing.call.on_progress = [](const tandem::CallProgress&) { throw 7; };
  EXPECT_NE(error_of([&] { translator.translate(lines, throwing); }), "no error");
  EXPECT_EQ(translator.translate(lines).size(), lines.size()) << "the model is as it was";
}

TEST(Library, StopsBetweenBatches) {
  Translator translator(kModels / "a", on_cpu());
  std::stop_source stop;
  tandem::TranslateOptions options;
  options.call.batch = 4;
  options.call.stop = stop.get_token();
  std::vector<int64_t> done;
  options.call.on_progress = [&](const tandem::CallProgress& progress) {
    done.push_back(progress.sentences);
    if (progress.sentences == 8) {
      stop.request_stop();
    }
  };
  EXPECT_NE(error_of([&] { translator.translate(source_lines(), options); }).find("stopped after 8 of"),
            std::string::npos);
  EXPECT_EQ(done, (std::vector<int64_t>{0, 4, 8}));
}

TEST(Library, ItsWordsGoToTheCallbackAlone) {
  std::vector<std::string> warnings;
  tandem::ModelOptions options = on_cpu();
  options.on_message = [&](tandem::Severity severity, const std::string& line) {
    if (severity == tandem::Severity::warning) {
      warnings.push_back(line);
    }
  };
  const std::string longer = many_words();
  ::testing::internal::CaptureStderr();
  ::testing::internal::CaptureStdout();
  {
    Translator told(kModels / "a", options), silent(kModels / "b", on_cpu());
    tandem::TranslateOptions from_40;
    from_40.first_line = 40;
    told.translate(std::vector<std::string>{"red cat", longer}, from_40);
    silent.translate(std::vector<std::string>{longer});
  }
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
  EXPECT_EQ(::testing::internal::GetCapturedStdout(), "");
  ASSERT_EQ(warnings.size(), 1U);
  EXPECT_NE(warnings[0].find("line 41"), std::string::npos) << warnings[0];
}

TEST(Library, NoSignalIsTouched) {
  const auto handlers = [] {
    std::vector<void (*)(int)> all;
    for (int number = 1; number < 32; ++number) {
      struct sigaction action {};
      sigaction(number, nullptr, &action);
      all.push_back(action.sa_handler);
    }
    return all;
  };
  const auto before = handlers();
  std::optional<Translator> translator(std::in_place, kModels / "a", on_cpu());
  Translator moved = std::move(*translator);
  translator.reset();
  moved.translate_line("red cat");
  EXPECT_EQ(handlers(), before);
}

}  // namespace
