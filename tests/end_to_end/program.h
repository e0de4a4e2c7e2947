// Runs the tandem binary as a user would, and makes small corpora for it.
#pragma once

#include <gtest/gtest.h>
#include <sys/types.h>

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "temporary_directory.h"

namespace tandem::testing {

struct Result {
  int exit_code = 0;  // 128 + n when a signal ended the program
  std::string out, err;
};

// The processes that this one has started, directly or not.
std::vector<pid_t> descendants(pid_t process);

// Standard input comes from `input`. environment: NAME=VALUE.
Result run(const std::vector<std::string>& arguments, const std::string& input = "",
           const std::vector<std::string>& environment = {});

// Starts the program and returns at once; its output goes to the file `log`.
pid_t start(const std::vector<std::string>& arguments, const std::filesystem::path& log,
            const std::vector<std::string>& environment = {});
int wait_for(pid_t process);                    // exit code as in Result
bool has_ended(pid_t process, int& exit_code);  // without waiting; afterwards the process is gone

std::string read_text(const std::filesystem::path& path);
void write_text(const std::filesystem::path& path, const std::string& text);

// Waits until the text appears in the file, or half a minute.
bool appears(const std::filesystem::path& file, const std::string& text);

// Writes train.en, train.de (a word-by-word code with reversed order), dev.en, dev.de and config.toml, and prepares
// them as `data`.
void make_small_corpus(const TemporaryDirectory& directory);

// Arguments that train a very small model on make_small_corpus() for `steps` steps.
std::vector<std::string> train_arguments(const TemporaryDirectory& directory, const std::string& run, int steps,
                                         const std::vector<std::string>& more = {});

// By step: a number of the run's train records.
std::map<int, double> train_records(const std::filesystem::path& run, const std::string& field, int rank = 0);

}  // namespace tandem::testing
