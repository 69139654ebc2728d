// The whole tool in real namespaces. Skipped, loudly, where none can be made.
#include "tools/lab/lab.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <gtest/gtest.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include <nlohmann/json.hpp>

#include "tools/command_line.h"

namespace farverbs::tools {
namespace {

struct Outcome {
  int exit_code = -1;
  std::string output;
  std::string errors;
};

std::string contents(const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

// Network namespaces that exist, as far as processes show them.
size_t namespaces_in_use() {
  std::set<std::string> seen;
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    std::error_code error;
    const auto target = std::filesystem::read_symlink(entry.path() / "ns/net", error);
    if (!error) seen.insert(target.string());
  }
  return seen.size();
}

class LabTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const std::string why = why_not(); !why.empty()) {
      std::fprintf(stderr, "\n*** SKIPPED: the lab was NOT tested in namespaces: %s ***\n\n",
                   why.c_str());
      GTEST_SKIP() << why;
    }
    char folder[] = "/tmp/farverbs-lab-test-XXXXXX";
    ASSERT_NE(::mkdtemp(folder), nullptr);
    folder_ = folder;
    name_ = "test" + std::to_string(::getpid());
  }
  void TearDown() override {
    if (!folder_.empty()) std::filesystem::remove_all(folder_);
  }

  // `farverbs lab ARGUMENTS` in a process of its own.
  pid_t start(const std::vector<std::string>& arguments) {
    const pid_t pid = ::fork();
    if (pid != 0) return pid;
    redirect("out", STDOUT_FILENO);
    redirect("err", STDERR_FILENO);
    std::vector<const char*> words = {"farverbs", "lab"};
    for (const std::string& argument : arguments) words.push_back(argument.c_str());
    const int code =
        run_command_line(static_cast<int>(words.size()), words.data(), {{"lab", register_lab}});
    std::fflush(nullptr);
    ::_exit(code);
  }
  Outcome finish(pid_t pid) {
    int status = 0;
    ::waitpid(pid, &status, 0);
    return {WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), contents(file("out")),
            contents(file("err"))};
  }
  Outcome lab(const std::vector<std::string>& arguments) { return finish(start(arguments)); }

  std::string file(const std::string& name) const { return folder_ + "/" + name; }
  nlohmann::json statistics() const { return nlohmann::json::parse(contents(file("json"))); }

  // Waits until a command in the lab has written a file.
  bool wait_for_file(const std::string& name) const {
    for (int i = 0; i < 500; ++i) {
      if (!contents(file(name)).empty()) return true;
      ::usleep(10'000);
    }
    return false;
  }
  // Waits until a process is gone; not for our children.
  static bool is_gone(pid_t pid) {
    for (int i = 0; i < 500; ++i) {
      if (::kill(pid, 0) != 0) return true;
      // A process that nobody waits for stays as a zombie where there is no init.
      const std::string stat = contents("/proc/" + std::to_string(pid) + "/stat");
      if (stat.find(") Z ") != std::string::npos) return true;
      ::usleep(10'000);
    }
    return false;
  }

  std::string folder_;
  std::string name_;
  const size_t before_ = namespaces_in_use();

 private:
  static std::string why_not() {
    const pid_t pid = ::fork();
    if (pid == 0) {
      const bool allowed =
          ::unshare(CLONE_NEWNET) == 0 || ::unshare(CLONE_NEWUSER | CLONE_NEWNET) == 0;
      ::_exit(allowed ? 0 : 1);
    }
    int status = 0;
    ::waitpid(pid, &status, 0);
    if (status != 0) return "neither root nor user namespaces";
    if (::access("/dev/net/tun", R_OK | W_OK) != 0) return "/dev/net/tun cannot be opened";
    return "";
  }
  void redirect(const std::string& name, int to) const {
    const int fd = ::open(file(name).c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    ::dup2(fd, to);
    ::close(fd);
  }
};

// Shell: waits for the other side to be ready, which says so by making the file.
std::string await(const std::string& path) {
  return "while [ ! -e " + path + " ]; do sleep 0.01; done; ";
}

// Sends `count` UDP packets of 1000 bytes, `burst` a millisecond.
std::string sender(int count, int burst) {
  return "python3 -c \"import socket,os,time\n"
         "s=socket.socket(socket.AF_INET,socket.SOCK_DGRAM)\n"
         "p=(os.environ['FARVERBS_LAB_PEER'],9000)\n"
         "for i in range(" +
         std::to_string(count) +
         "):\n"
         " s.sendto(i.to_bytes(4,'big')*243,p)\n"
         " if i%" +
         std::to_string(burst) +
         "==0: time.sleep(0.001)\n"
         "time.sleep(0.2)\"";
}

TEST_F(LabTest, PassesOnTheExitCodeAndTheEnvironment) {
  const Outcome outcome =
      lab({"run", "--", "sleep 60",
           "echo $FARVERBS_LAB_SIDE $FARVERBS_LAB_SELF $FARVERBS_LAB_PEER; exit 7"});
  EXPECT_EQ(outcome.exit_code, 7);
  EXPECT_EQ(outcome.output, "b 10.88.0.2 10.88.0.1\n");
  EXPECT_NE(outcome.errors.find("A > B"), std::string::npos) << outcome.errors;
}

TEST_F(LabTest, DelaysByTheRoundTripTime) {
  const Outcome outcome = lab({"run", "--rtt", "40ms", "--json", file("json"), "--", "sleep 60",
                               "ping -q -c 10 -i 0.02 $FARVERBS_LAB_PEER"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.output << outcome.errors;
  double least = 0;
  const size_t at = outcome.output.find("mdev = ");
  ASSERT_NE(at, std::string::npos) << outcome.output;
  std::stringstream(outcome.output.substr(at + 7)) >> least;
  EXPECT_GE(least, 39.8);
  EXPECT_LE(least, 45);
  const nlohmann::json json = statistics();
  EXPECT_EQ(json["a_to_b"]["packets_in"], 10);
  EXPECT_EQ(json["b_to_a"]["packets_out"], 10);
  EXPECT_EQ(json["exit_code"], 0);
}

TEST_F(LabTest, LosesTheSamePacketsForTheSameSeed) {
  std::string first;
  for (int round = 0; round < 2; ++round) {
    const Outcome outcome = lab({"run", "--loss", "5%/0", "--seed", "3", "--json", file("json"),
                                 "--", await(file("ready")) + sender(2000, 20) + "; sleep 60",
                                 "python3 -c \"import socket\n"
                                 "s=socket.socket(socket.AF_INET,socket.SOCK_DGRAM)\n"
                                 "s.setsockopt(socket.SOL_SOCKET,socket.SO_RCVBUF,4000000)\n"
                                 "s.bind(('',9000));got=[];s.settimeout(3);open('" +
                                     file("ready") +
                                     "','w')\n"
                                     "try:\n"
                                     " while not got or got[-1]<1990:\n"
                                     "  got.append(int.from_bytes(s.recv(2000)[:4],'big'))\n"
                                     "except TimeoutError: pass\n"
                                     "print(sorted(set(range(1900))-set(got)))\""});
    ASSERT_EQ(outcome.exit_code, 0) << outcome.errors;
    const nlohmann::json json = statistics();
    EXPECT_GE(json["a_to_b"]["packets_in"].get<int>(), 1990);
    EXPECT_NEAR(json["a_to_b"]["loss_rate"].get<double>(), 0.05, 0.02);
    EXPECT_EQ(json["b_to_a"]["lost"], 0);
    if (round == 0) first = outcome.output;
    EXPECT_EQ(outcome.output, first);
    ::unlink(file("ready").c_str());
  }
  EXPECT_GT(first.size(), 100u);
}

TEST_F(LabTest, LimitsTheRateOfTcp) {
  const Outcome outcome = lab(
      {"run", "--rate", "100mbit", "--rtt", "2ms", "--json", file("json"), "--",
       "python3 -c \"import socket\n"
       "l=socket.create_server(('',9000));open('" +
           file("ready") +
           "','w');c,_=l.accept()\n"
           "while c.recv(1<<20): pass\n"
           "c.send(b'x');c.close()\"; sleep 60",
       await(file("ready")) +
           "python3 -c \"import socket,os,time\n"
           "s=socket.create_connection((os.environ['FARVERBS_LAB_PEER'],9000));t=time.monotonic()\n"
           "s.sendall(bytes(10000000));s.shutdown(1);s.recv(1)\n"
           "print(80/(time.monotonic()-t))\""});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.errors;
  const double mbit = std::strtod(outcome.output.c_str(), nullptr);
  // 1448 bytes of payload of every 1538: 94.1 Mb/s, less the start.
  EXPECT_GT(mbit, 50) << outcome.errors;
  EXPECT_LT(mbit, 94.5) << outcome.errors;
  EXPECT_EQ(statistics()["b_to_a"]["device_dropped"], 0);
}

TEST_F(LabTest, CarriesIpv6AndSuperPacketsOfUdp) {
  const Outcome outcome =
      lab({"run", "--ipv6", "--rtt", "4ms", "--json", file("json"), "--",
           await(file("ready")) + "python3 -c \"import socket,os,struct\n"
                                  "s=socket.socket(socket.AF_INET6,socket.SOCK_DGRAM)\n"
                                  "s.setsockopt(socket.IPPROTO_UDP,103,1000)\n"
                                  "s.sendto(bytes(range(250))*4*20+b'last',(os.environ['FARVERBS_"
                                  "LAB_PEER'],9000))\"; sleep 60",
           "python3 -c \"import socket,struct\n"
           "s=socket.socket(socket.AF_INET6,socket.SOCK_DGRAM)\n"
           "s.setsockopt(socket.IPPROTO_UDP,104,1)\n"
           "s.bind(('::',9000));s.settimeout(5);open('" +
               file("ready") +
               "','w')\n"
               "d,c,_,a=s.recvmsg(70000,100)\n"
               "size=struct.unpack('H',c[0][2][:2])[0] if c else 0\n"
               "print(a[0],len(d),size,d==bytes(range(250))*4*20+b'last')\""});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.errors;
  EXPECT_EQ(outcome.output, "fd88::1 20004 1000 True\n") << outcome.errors;
  const nlohmann::json json = statistics();
  EXPECT_EQ(json["a_to_b"]["packets_in"], 21);
  EXPECT_EQ(json["a_to_b"]["reads"], 1);
  EXPECT_EQ(json["a_to_b"]["writes"], 1);
}

TEST_F(LabTest, CorruptionReachesTheApplication) {
  const Outcome outcome =
      lab({"run", "--corrupt", "100%/0", "--", await(file("ready")) + sender(100, 5) + "; sleep 60",
           "python3 -c \"import socket\n"
           "s=socket.socket(socket.AF_INET,socket.SOCK_DGRAM)\n"
           "s.bind(('',9000));s.settimeout(1.5);bad=0;open('" +
               file("ready") +
               "','w')\n"
               "try:\n"
               " while True:\n"
               "  d=s.recv(2000);bad+=d!=d[:4]*243\n"
               "except TimeoutError: print(bad)\""});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.errors;
  EXPECT_GT(std::atoi(outcome.output.c_str()), 80);
}

TEST_F(LabTest, MarksDuplicatesAndDelaysOutOfOrder) {
  // 200 packets of 1010 bytes at once are 16 ms at 100 Mb/s.
  const Outcome outcome = lab(
      {"run", "--rate", "100mbit", "--queue", "1MB", "--ecn", "4ms", "--duplicate", "20%",
       "--reorder", "20%:5ms", "--json", file("json"), "--",
       await(file("ready")) +
           "python3 -c \"import socket,os\n"
           "s=socket.socket(socket.AF_INET,socket.SOCK_DGRAM)\n"
           "s.setsockopt(socket.IPPROTO_IP,socket.IP_TOS,2)\n"
           "for i in range(200):\n"
           " s.sendto(i.to_bytes(4,'big')*243,(os.environ['FARVERBS_LAB_PEER'],9000))\"; sleep 60",
       "python3 -c \"import socket\n"
       "s=socket.socket(socket.AF_INET,socket.SOCK_DGRAM)\n"
       "s.setsockopt(socket.SOL_SOCKET,socket.SO_RCVBUF,4000000)\n"
       "s.setsockopt(socket.IPPROTO_IP,socket.IP_RECVTOS,1)\n"
       "s.bind(('',9000));s.settimeout(1);got=[];marks=0;open('" +
           file("ready") +
           "','w')\n"
           "try:\n"
           " while True:\n"
           "  d,c,_,_=s.recvmsg(2000,100)\n"
           "  got.append(int.from_bytes(d[:4],'big'));marks+=c[0][2][0]&3==3\n"
           "except TimeoutError: pass\n"
           "late=sum(b<a for a,b in zip(got,got[1:]))\n"
           "print(len(set(got)),len(got)-200,late>10,marks)\""});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.errors;
  const nlohmann::json json = statistics()["a_to_b"];
  int different = 0, twice = 0, marks = 0;
  char out_of_order[8] = "";
  ASSERT_EQ(
      std::sscanf(outcome.output.c_str(), "%d %d %7s %d", &different, &twice, out_of_order, &marks),
      4)
      << outcome.output << outcome.errors;
  EXPECT_EQ(different, 200);
  EXPECT_EQ(twice, json["duplicated"]);
  EXPECT_STREQ(out_of_order, "True");
  EXPECT_GT(twice, 15);
  EXPECT_GT(json["late"], 15);
  EXPECT_GT(json["ce_marked"], 0);
  EXPECT_GE(marks, json["ce_marked"]);
}

TEST_F(LabTest, EndsEverythingWhenInterrupted) {
  for (const int signal : {SIGTERM, SIGINT, SIGKILL}) {
    ::unlink(file("a").c_str());
    ::unlink(file("b").c_str());
    const pid_t pid = start({"run", "--", "echo $$ > " + file("a") + "; sleep 61; true",
                             "echo $$ > " + file("b") + "; setsid sleep 62 & sleep 63; true"});
    ASSERT_TRUE(wait_for_file("a") && wait_for_file("b"));
    const auto a = static_cast<pid_t>(std::atoi(contents(file("a")).c_str()));
    const auto b = static_cast<pid_t>(std::atoi(contents(file("b")).c_str()));
    ::kill(pid, signal);
    EXPECT_EQ(finish(pid).exit_code, 128 + signal);
    EXPECT_TRUE(is_gone(a));
    EXPECT_TRUE(is_gone(b));
    bool clean = false;
    for (int i = 0; i < 400 && !clean; ++i) {
      clean = namespaces_in_use() <= before_;
      ::usleep(10'000);
    }
    EXPECT_TRUE(clean) << "a process of the lab survives signal " << signal;
  }
}

TEST_F(LabTest, SaysThatTheRunIsVoidWhenTheEmulatorDies) {
  // The emulator is that child of the lab which holds a TUN device.
  const Outcome outcome =
      lab({"run", "--", "sleep 60",
           "me=$$; lab=$(cut -d' ' -f4 /proc/$me/stat); "
           "for p in $(cat /proc/$lab/task/$lab/children); do "
           "ls -l /proc/$p/fd | grep -q net/tun && kill -9 $p; done; sleep 60"});
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_NE(outcome.errors.find("the run is void"), std::string::npos) << outcome.errors;
}

TEST_F(LabTest, UpExecStatsDown) {
  Outcome outcome = lab({"up", name_, "--rtt", "10ms"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.errors;
  outcome = lab({"up", name_});
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_NE(outcome.errors.find("already up"), std::string::npos) << outcome.errors;
  outcome = lab({"exec", name_, "a", "--", "ping", "-q", "-c", "3", "-i", "0.02", "10.88.0.2"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.output << outcome.errors;
  outcome = lab({"exec", name_, "b", "--", "sh", "-c", "echo $FARVERBS_LAB_SELF; exit 9"});
  EXPECT_EQ(outcome.exit_code, 9);
  EXPECT_EQ(outcome.output, "10.88.0.2\n");
  EXPECT_EQ(lab({"exec", name_, "b", "--", "/no/such/program"}).exit_code, 127);
  ::usleep(150'000);
  outcome = lab({"stats", name_, "--json"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.errors;
  EXPECT_EQ(nlohmann::json::parse(outcome.output)["a_to_b"]["packets_out"], 3);
  const pid_t left = start({"exec", name_, "a", "--", "sleep", "64"});
  ::usleep(200'000);
  outcome = lab({"down", name_, "--json"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.errors;
  EXPECT_TRUE(nlohmann::json::parse(outcome.output)["complete"].get<bool>());
  EXPECT_EQ(finish(left).exit_code, 128 + SIGTERM);
  EXPECT_EQ(lab({"down", name_}).exit_code, 1);
  EXPECT_EQ(lab({"exec", name_, "a", "--", "true"}).exit_code, 1);
}

TEST_F(LabTest, ThePathChangesWhileItRuns) {
  const auto ping = [&] {
    return lab({"exec", name_, "a", "--", "ping", "-q", "-c", "2", "-i", "0.02", "-W", "0.3",
                "10.88.0.2"});
  };
  ASSERT_EQ(lab({"up", name_, "--rtt", "2ms"}).exit_code, 0);
  ASSERT_EQ(ping().exit_code, 0);
  Outcome outcome = lab({"set", name_, "--down"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.errors;
  EXPECT_NE(outcome.output.find("down, unlimited, RTT 2 ms"), std::string::npos) << outcome.output;
  ::usleep(120'000);
  EXPECT_EQ(ping().exit_code, 1);
  ASSERT_EQ(lab({"set", name_, "--up", "--rtt", "30ms"}).exit_code, 0);
  ::usleep(120'000);
  outcome = ping();
  EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
  double least = 0;
  std::sscanf(outcome.output.c_str() + outcome.output.find("mdev = "), "mdev = %lf", &least);
  EXPECT_GE(least, 29.8);
  EXPECT_EQ(lab({"set", name_, "--loss", "1"}).exit_code, 2);
  outcome = lab({"down", name_, "--json"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.errors;
  const auto json = nlohmann::json::parse(outcome.output)["a_to_b"];
  EXPECT_EQ(json["lost"], 2);
  EXPECT_EQ(json["dropped_bytes"], 2 * 84);
  EXPECT_EQ(lab({"set", name_, "--up"}).exit_code, 1);
}

TEST_F(LabTest, ADeadEmulatorIsToldAndReplaced) {
  ASSERT_EQ(lab({"up", name_}).exit_code, 0);
  const std::string folder = ::geteuid() == 0
                                 ? "/run/farverbs/lab"
                                 : std::string(std::getenv("XDG_RUNTIME_DIR")) + "/farverbs/lab";
  const auto state = nlohmann::json::parse(contents(folder + "/" + name_ + ".json"));
  const auto pid = state["pid"].get<pid_t>();
  ::kill(pid, SIGKILL);
  ASSERT_TRUE(is_gone(pid));
  const Outcome outcome = lab({"exec", name_, "a", "--", "true"});
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_NE(outcome.errors.find("its emulator ended"), std::string::npos) << outcome.errors;
  EXPECT_EQ(lab({"up", name_}).exit_code, 0);
  EXPECT_EQ(lab({"down", name_}).exit_code, 0);
}

TEST_F(LabTest, MistakesAreUsageErrors) {
  for (const std::vector<std::string>& arguments : std::vector<std::vector<std::string>>{
           {"run", "--rate", "200", "--", "true", "true"},
           {"run", "--loss", "0.01", "--", "true", "true"},
           {"run", "--loss", "90%", "--", "true"},
           {"run", "--burst-loss", "0.5", "--", "true", "true"},
           {"run", "--ipv6", "--mtu", "1000", "--", "true", "true"},
           {"set", "--up", "--down"},
           {"exec", "c"},
           {"exec", "a"}}) {
    const Outcome outcome = lab(arguments);
    EXPECT_EQ(outcome.exit_code, 2) << arguments[1] << outcome.errors;
    EXPECT_FALSE(outcome.errors.empty());
  }
}

}  // namespace
}  // namespace farverbs::tools
