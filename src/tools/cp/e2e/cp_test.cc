// `farverbs serve` and `farverbs cp` as processes over loopback.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "tools/cp/e2e/process.h"
#include "tools/cp/plan.h"

namespace farverbs::tools::copy {
namespace {

using testing::HasSubstr;
using Json = nlohmann::json;

class CpTest : public testing::Test {
 protected:
  void SetUp() override {
    ::mkdir(root("").c_str(), 0755);
    ::mkdir(local("").c_str(), 0755);
    start_server();
  }
  std::string root(const std::string& name) { return directory_ / ("root/" + name); }
  std::string local(const std::string& name) { return directory_ / ("local/" + name); }
  std::string url(const std::string& path) {
    return "farverbs://127.0.0.1:" + std::to_string(port_) + "/" + path;
  }

  void start_server(std::vector<std::string> more = {}) {
    server_.reset();
    std::vector<std::string> arguments = {FARVERBS_BINARY,     "serve",  "--root",
                                          directory_ / "root", "--port", std::to_string(port_)};
    arguments.insert(arguments.end(), more.begin(), more.end());
    server_ = std::make_unique<Process>(arguments, directory_ / "server.log");
    ASSERT_TRUE(server_->prints("serving ")) << server_->text();
    const std::string text = server_->text();
    const size_t at = text.find("127.0.0.1:");
    ASSERT_NE(at, std::string::npos) << text;
    port_ = std::stoi(text.substr(at + 10));
  }
  std::unique_ptr<Process> start(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), {FARVERBS_BINARY, "cp"});
    return std::make_unique<Process>(arguments,
                                     directory_ / fmt::format("client{}.log", ++clients_));
  }
  // What a client prints, after its exit with `code`.
  std::string run(std::vector<std::string> arguments, int code = 0) {
    const std::unique_ptr<Process> client = start(std::move(arguments));
    const int got = client->wait();
    EXPECT_EQ(got, code) << client->text();
    return client->text();
  }
  Json run_json(std::vector<std::string> arguments) {
    arguments.push_back("--json");
    const std::string text = run(std::move(arguments));
    const size_t brace = text.find('{');
    return Json::parse(brace == std::string::npos ? "" : text.substr(brace), nullptr, false);
  }
  // A file that takes a while, and a client that is in the middle of sending or fetching it.
  void make_large(const std::string& path) {
    const Fd file(::open(path.c_str(), O_WRONLY | O_CREAT, 0644));
    std::string block = random_bytes(kPieceBytes, 9);
    for (uint64_t i = 0; i < kLargePieces; ++i) {
      std::memcpy(block.data(), &i, sizeof i);
      ASSERT_EQ(::write(file.get(), block.data(), block.size()),
                static_cast<ssize_t>(block.size()));
    }
  }
  // Waits until some pieces of NAME have arrived in `folder`.
  static bool under_way(const std::string& folder, const std::string& name) {
    for (int i = 0; i < 10'000; ++i) {
      const std::string notes = read_file(folder + state_name(name));
      // A header of 32 bytes, then 16 for each piece: the ninth is noted.
      if (notes.size() > 500 && notes.substr(32 + 8 * 16, 16) != std::string(16, '\0')) {
        return true;
      }
      std::this_thread::sleep_for(Milliseconds(1));
    }
    return false;
  }

  static constexpr uint64_t kLargePieces = 300;
  static constexpr const char* kSlow = "--mtu=256";
  TestDirectory directory_;
  int port_ = 0;
  int clients_ = 0;
  std::unique_ptr<Process> server_;
};

TEST_F(CpTest, PutsAndGetsFilesAndTrees) {
  write_file(local("file"), random_bytes(3'000'000, 1));
  set_mtime(local("file"), 1'000'000'000, 123'456'789);
  EXPECT_THAT(run({local("file"), url("")}), HasSubstr("1 file, 3 MB moved"));
  EXPECT_EQ(describe_tree(local("file")), describe_tree(root("file")));
  run({url("file"), local("back")});
  EXPECT_EQ(describe_tree(local("file")), describe_tree(local("back")));

  ::mkdir(local("tree").c_str(), 0755);
  ::mkdir(local("tree/sub dir").c_str(), 0750);
  for (int i = 0; i < 300; ++i) {
    write_file(local("tree/sub dir/\xff" + std::to_string(i)), random_bytes(i * 100, i));
  }
  ASSERT_EQ(::symlink("sub dir/\xff"
                      "7",
                      local("tree/link").c_str()),
            0);
  const Json put = run_json({"-r", local("tree"), url("")});
  EXPECT_EQ(put["files"], 300);
  EXPECT_EQ(put["ok"], true);
  EXPECT_EQ(describe_tree(local("tree")), describe_tree(root("tree")));
  run({"-r", url("tree"), local("tree2")});
  EXPECT_EQ(describe_tree(local("tree")), describe_tree(local("tree2")));
  EXPECT_EQ(run({"-q", url("file"), local("quiet")}), "");
}

TEST_F(CpTest, ClassAndTransportAreChosen) {
  write_file(local("file"), random_bytes(1'000'000, 1));
  run({local("file"), url("a"), "--class=background"});
  run({url("a"), local("b"), "--class=realtime", "--transport=standard"});
  EXPECT_EQ(read_file(local("file")), read_file(local("b")));
  EXPECT_THAT(run({local("file"), url("c"), "--class=urgent"}, 2), HasSubstr("background"));
}

TEST_F(CpTest, MistakesAreToldFromFailures) {
  write_file(local("file"), "x");
  EXPECT_THAT(run({local("file"), local("b")}, 2), HasSubstr("neither SRC nor DST is remote"));
  EXPECT_THAT(run({url("a"), url("b")}, 2), HasSubstr("both SRC and DST are remote"));
  EXPECT_THAT(run({local("file"), "farverbs://h:99999/x"}, 2), HasSubstr("is not a port"));
  EXPECT_THAT(run({local("file"), "farverbs://127.0.0.1:1/x"}, 1), HasSubstr("127.0.0.1"));
  EXPECT_THAT(run({local("none"), url("")}, 1), HasSubstr("No such file"));
  EXPECT_THAT(run({url("none"), local("x")}, 1), HasSubstr("No such file"));
  EXPECT_THAT(run({local(""), url("")}, 1), HasSubstr("add -r"));
  EXPECT_THAT(run({url(""), local("x")}, 1), HasSubstr("add -r"));
  EXPECT_THAT(run({local("file"), url("no/such")}, 1), HasSubstr("create it first"));
  EXPECT_THAT(run({local("file"), "farverbs://no-such-host.invalid/"}, 1),
              HasSubstr("no-such-host"));
  ::mkdir(root("dir").c_str(), 0755);
  ::mkdir(root("dir/file").c_str(), 0755);
  EXPECT_THAT(run({local("file"), url("dir")}, 1), HasSubstr("is a directory there"));
}

TEST_F(CpTest, NothingOutsideOfTheRootIsReached) {
  write_file(directory_ / "secret", "precious");
  write_file(local("file"), "overwrite");
  ASSERT_EQ(::symlink("../secret", root("climbs").c_str()), 0);
  ASSERT_EQ(::symlink("..", root("up").c_str()), 0);
  for (const char* path : {"../secret", "%2e%2e/secret", "climbs", "up/secret"}) {
    const std::string text =
        run({url(path), local("stolen")}, path[0] == 'c' || path[0] == 'u' ? 1 : 2);
    EXPECT_FALSE(exists(local("stolen"))) << path;
  }
  run({local("file"), url("up/secret")}, 1);
  run({local("file"), url("up")}, 1);
  EXPECT_EQ(read_file(directory_ / "secret"), "precious");
}

TEST_F(CpTest, ServeListensToThisMachineOnlyUnlessTold) {
  Process open({FARVERBS_BINARY, "serve", "--root", directory_ / "root", "--bind", "0.0.0.0"},
               directory_ / "open.log");
  EXPECT_EQ(open.wait(), 2);
  EXPECT_THAT(open.text(), HasSubstr("no encryption"));
  EXPECT_THAT(open.text(), HasSubstr("--insecure-listen"));
  Process nowhere({FARVERBS_BINARY, "serve", "--root", directory_ / "none", "--port", "0"},
                  directory_ / "none.log");
  EXPECT_EQ(nowhere.wait(), 1);
  EXPECT_THAT(nowhere.text(), HasSubstr("No such file"));
  Process taken(
      {FARVERBS_BINARY, "serve", "--root", directory_ / "root", "--port", std::to_string(port_)},
      directory_ / "taken.log");
  EXPECT_EQ(taken.wait(), 1);
  EXPECT_THAT(taken.text(), HasSubstr(std::to_string(port_)));
}

TEST_F(CpTest, AReadOnlyServerOnlyGives) {
  start_server({"--read-only"});
  write_file(root("file"), "x");
  run({url("file"), local("file")});
  EXPECT_THAT(run({local("file"), url("other")}, 1), HasSubstr("read-only"));
  EXPECT_FALSE(exists(root("other")));
}

TEST_F(CpTest, AKilledServerLeavesNoHalfFileAndTheNextOneContinues) {
  make_large(local("large"));
  write_file(root("large"), "the old content");
  const auto client = start({local("large"), url(""), kSlow, "--retries=0"});
  ASSERT_TRUE(under_way(root(""), "large"));
  server_->signal(SIGKILL);
  EXPECT_EQ(client->wait(), 1) << client->text();
  EXPECT_THAT(client->text(), HasSubstr("the same command again continues"));
  EXPECT_EQ(read_file(root("large")), "the old content");
  start_server();
  const Json again = run_json({local("large"), url("")});
  EXPECT_GE(again["bytes_resumed"].get<uint64_t>(), 8 * kPieceBytes);
  EXPECT_EQ(again["bytes"].get<uint64_t>() + again["bytes_resumed"].get<uint64_t>(),
            kLargePieces * kPieceBytes);
  EXPECT_EQ(read_file(root("large")), read_file(local("large")));
  EXPECT_FALSE(exists(root(state_name("large")))) << "leftovers stay";
}

TEST_F(CpTest, AServerThatComesBackIsFoundAgain) {
  make_large(local("large"));
  const auto client = start({local("large"), url(""), kSlow});
  ASSERT_TRUE(under_way(root(""), "large"));
  server_->signal(SIGKILL);
  ASSERT_TRUE(client->prints("connecting again")) << client->text();
  start_server();
  EXPECT_EQ(client->wait(), 0) << client->text();
  EXPECT_EQ(read_file(root("large")), read_file(local("large")));
}

TEST_F(CpTest, AKilledClientIsNoticedAndItsFileKept) {
  make_large(local("large"));
  {
    const auto client = start({local("large"), url(""), kSlow});
    ASSERT_TRUE(under_way(root(""), "large"));
    client->signal(SIGKILL);
    client->wait();
  }
  EXPECT_TRUE(server_->prints("127.0.0.1: ")) << "the server did not notice";
  EXPECT_FALSE(exists(root("large")));
  const Json again = run_json({local("large"), url("")});
  EXPECT_GE(again["bytes_resumed"].get<uint64_t>(), 8 * kPieceBytes);
  EXPECT_EQ(read_file(root("large")), read_file(local("large")));
}

TEST_F(CpTest, AnInterruptedGetContinues) {
  make_large(root("large"));
  const auto client = start({url("large"), local("large"), kSlow});
  ASSERT_TRUE(under_way(local(""), "large"));
  client->signal(SIGINT);
  EXPECT_EQ(client->wait(), 130) << client->text();
  EXPECT_FALSE(exists(local("large")));
  const Json again = run_json({url("large"), local("large")});
  EXPECT_GE(again["bytes_resumed"].get<uint64_t>(), 8 * kPieceBytes);
  EXPECT_EQ(read_file(root("large")), read_file(local("large")));
}

TEST_F(CpTest, APeerThatStopsForAWhileIsWaitedForOrFoundAgain) {
  make_large(local("large"));
  auto client = start({local("large"), url(""), kSlow});
  ASSERT_TRUE(under_way(root(""), "large"));
  server_->signal(SIGSTOP);
  std::this_thread::sleep_for(Milliseconds(2500));
  server_->signal(SIGCONT);
  EXPECT_EQ(client->wait(), 0) << client->text();
  EXPECT_EQ(read_file(root("large")), read_file(local("large")));

  client = start({url("large"), local("back"), kSlow});
  ASSERT_TRUE(under_way(local(""), "back"));
  client->signal(SIGSTOP);
  std::this_thread::sleep_for(Milliseconds(2500));
  client->signal(SIGCONT);
  EXPECT_EQ(client->wait(), 0) << client->text();
  EXPECT_EQ(read_file(local("back")), read_file(local("large")));
}

TEST_F(CpTest, ATruncatedSourceIsReportedAndTheServerLivesOn) {
  make_large(root("large"));
  const auto client = start({url("large"), local("large"), kSlow, "--retries=0"});
  ASSERT_TRUE(under_way(local(""), "large"));
  ASSERT_EQ(::truncate(root("large").c_str(), 1000), 0);
  EXPECT_EQ(client->wait(), 1) << client->text();
  EXPECT_THAT(client->text(), HasSubstr("changed while being sent"));
  EXPECT_FALSE(exists(local("large")));
  run({url("large"), local("large")});
  EXPECT_EQ(status_of(local("large")).st_size, 1000);
}

TEST_F(CpTest, AServerAnswersPing) {
  Process ping(
      {FARVERBS_BINARY, "ping", "127.0.0.1", "--port", std::to_string(port_), "--count", "3"},
      directory_ / "ping.log");
  EXPECT_EQ(ping.wait(), 0) << ping.text();
}

TEST_F(CpTest, SeveralClientsAtOnce) {
  std::vector<std::unique_ptr<Process>> clients;
  for (int i = 0; i < 4; ++i) {
    const std::string name = "file" + std::to_string(i);
    write_file(local(name), random_bytes(5'000'000, static_cast<uint64_t>(i)));
    clients.push_back(start({local(name), url("")}));
  }
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(clients[static_cast<size_t>(i)]->wait(), 0);
    const std::string name = "file" + std::to_string(i);
    EXPECT_EQ(read_file(root(name)), read_file(local(name)));
  }
  // A session more than allowed is told so.
  start_server({"--max-clients", "1"});
  make_large(local("large"));
  const auto first = start({local("large"), url(""), kSlow});
  ASSERT_TRUE(under_way(root(""), "large"));
  EXPECT_THAT(run({local("file0"), url("other")}, 1), HasSubstr("as many clients as it takes"));
  EXPECT_EQ(first->wait(), 0);
}

}  // namespace
}  // namespace farverbs::tools::copy
