// Tables of figures that tests make and the project keeps, so that a change in behaviour is a
// visible difference. FARVERBS_UPDATE_SNAPSHOTS=1 in the environment writes them anew.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>

namespace farverbs::sim {

// The table is the one kept under this name in the simulator's folder.
inline void expect_kept(const std::string& table, const std::string& name) {
  const std::string path = FARVERBS_SOURCE_DIR "/src/farverbs/sim/" + name;
  if (std::getenv("FARVERBS_UPDATE_SNAPSHOTS") != nullptr) std::ofstream(path) << table;
  std::ifstream in(path);
  const std::string kept((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
  EXPECT_EQ(table, kept) << name << "; if that is meant: FARVERBS_UPDATE_SNAPSHOTS=1";
}

}  // namespace farverbs::sim
