// The fixture of tests that run a sender against a receiver over a link in memory.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <thread>

#include "tools/cp/endpoints.h"
#include "tools/cp/fake_link.h"
#include "tools/cp/sender.h"
#include "tools/cp/test_files.h"

namespace farverbs::tools::copy {

struct Ledger final : Observer {
  void on_found(uint64_t files, uint64_t) override { found += files; }
  void on_all_found() override {}
  void on_bytes(uint64_t bytes, bool from_before) override {
    (from_before ? resumed : moved) += bytes;
  }
  void on_file_done(const std::string&, bool same) override {
    ++done;
    unchanged += same ? 1 : 0;
  }
  void on_retransmission() override { ++repeated; }
  void on_problem(const std::string& path, const std::string& message) override {
    problems += path + ": " + message + "\n";
  }
  void on_tick() override {}
  uint64_t found = 0, moved = 0, resumed = 0, done = 0, unchanged = 0, repeated = 0;
  std::string problems;
};

struct Outcome {
  Result<void> sent;
  Result<void> received;
  Ledger sender;
  Ledger receiver;
};

class SessionTest : public testing::Test {
 protected:
  void SetUp() override {
    install_fault_guard();
    ::mkdir(from("").c_str(), 0755);
    ::mkdir(to("").c_str(), 0755);
  }
  std::string from(const std::string& name) { return directory_ / ("from/" + name); }
  std::string to(const std::string& name) { return directory_ / ("to/" + name); }

  // One session from `source` to `target`, both beneath the test's directory.
  Outcome copy(const std::string& source, const std::string& target, bool recursive = true,
               bool always = false) {
    FakeWire wire;
    return copy(wire, source, target, recursive, always);
  }
  Outcome copy(FakeWire& wire, const std::string& source, const std::string& target,
               bool recursive = true, bool always = false) {
    Outcome outcome;
    Result<SourceRoot> root = resolve_local_source(directory_ / source, recursive);
    if (!root.ok()) {
      outcome.sent = root.error();
      return outcome;
    }
    Result<Target> place =
        resolve_local_target({directory_ / target, false, root->own_name, root->directory});
    if (!place.ok()) {
      outcome.received = place.error();
      return outcome;
    }
    FakeLink sender_link(wire, 0);
    FakeLink receiver_link(wire, 1);
    std::thread receiving([&] {
      ReceiverOptions options;
      options.always = always;
      options.source_name = root->own_name;
      Receiver receiver(receiver_link, std::move(*place), options, outcome.receiver);
      outcome.received = receiver.run([] { return false; });
      if (!outcome.received.ok()) wire.close();
    });
    Sender sender(sender_link, Walk(root->base.get(), root->entry, recursive), outcome.sender);
    outcome.sent = sender.run([] { return false; });
    if (!outcome.sent.ok()) wire.close();
    receiving.join();
    return outcome;
  }
  static void expect_clean(const Outcome& outcome) {
    EXPECT_TRUE(outcome.sent.ok()) << outcome.sent.error().message;
    EXPECT_TRUE(outcome.received.ok()) << outcome.received.error().message;
    EXPECT_EQ(outcome.sender.problems, "");
    EXPECT_EQ(outcome.receiver.problems, "");
  }
  void expect_no_leftovers() {
    for (const auto& [name, text] : describe_tree(to(""))) {
      EXPECT_EQ(name.find("farverbs-"), std::string::npos) << name;
    }
  }

  TestDirectory directory_;
};

}  // namespace farverbs::tools::copy
