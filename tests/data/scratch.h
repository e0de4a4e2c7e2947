// A fixture with a directory that is removed afterwards.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "temporary_directory.h"

namespace tandem::testing {

class Scratch : public ::testing::Test {
 protected:
  std::string at(const std::string& name) const { return temporary_.at(name); }

  const TemporaryDirectory temporary_;
  const std::filesystem::path& directory_ = temporary_.path();
};

inline bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace tandem::testing
