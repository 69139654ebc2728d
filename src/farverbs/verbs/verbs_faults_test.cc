// What applications, peers and files do wrong: each gets its own completion status or errno and a
// message, and harms nobody else.
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <thread>

#include "farverbs/verbs/test_pair.h"

namespace farverbs::verbs {
namespace {

TEST(Faults, AWrongKeyRangeRightOrDomainIsARemoteAccessError) {
  struct Case {
    const char* name;
    uint64_t address_offset;
    uint32_t key_change;
    bool read_only;
    bool other_pd;
  };
  for (const Case& c : {Case{"key", 0, 0x10, false, false}, Case{"range", 1 << 20, 0, false, false},
                        Case{"right", 0, 0, true, false}, Case{"domain", 0, 0, false, true}}) {
    SCOPED_TRACE(c.name);
    Pair pair;
    Pair bystander;
    std::vector<std::byte> memory(1 << 20);
    ProtectionDomain pd = must(pair.b.device.allocate_pd());
    MemoryRegion region = must((c.other_pd ? pd : pair.b.pd)
                                   .register_memory(memory.data(), memory.size(),
                                                    c.read_only ? model::kRemoteRead : kAllAccess));
    const ScatterGatherElement sge = pair.a.region.sge(0, 100);
    SendWorkRequest wr;
    wr.wr_id = 5;
    wr.opcode = SendOpcode::kWrite;
    wr.flags = model::kSignaled;
    wr.sges = {&sge, 1};
    wr.remote_address = region.address() + c.address_offset;
    wr.remote_key = MemoryKey(region.rkey().value() ^ c.key_change);
    must(pair.a.qp.post_send(wr));
    must(pair.a.qp.post_send(wr));
    const WorkCompletion first = pair.a.completion();
    EXPECT_EQ(first.status, CompletionStatus::kRemoteAccessError);
    EXPECT_EQ(first.wr_id, 5u);
    EXPECT_EQ(pair.a.completion().status, CompletionStatus::kWorkRequestFlushed);
    EXPECT_EQ(pair.a.qp.state(), QpState::kErr);
    // Another QP of the same process is as before.
    must(bystander.a.post(SendOpcode::kWrite, 1, 0, 100, &bystander.b.region, 0));
    EXPECT_EQ(bystander.a.completion().status, CompletionStatus::kSuccess);
  }
}

TEST(Faults, ALocalKeyThatDoesNotHoldIsALocalProtectionError) {
  Pair pair;
  const ScatterGatherElement sge{pair.a.region.address(), 100,
                                 MemoryKey(pair.a.region.lkey().value() + 1)};
  SendWorkRequest wr;
  wr.opcode = SendOpcode::kWrite;
  wr.flags = model::kSignaled;
  wr.sges = {&sge, 1};
  wr.remote_address = pair.b.region.address();
  wr.remote_key = pair.b.region.rkey();
  must(pair.a.qp.post_send(wr));
  EXPECT_EQ(pair.a.completion().status, CompletionStatus::kLocalProtectionError);
}

TEST(Faults, AFileThatShrinksWhileItIsSentFailsTheRequestNotTheProcess) {
  Pair pair;
  char path[] = "/tmp/farverbs-shrink-XXXXXX";
  const int fd = ::mkstemp(path);
  ASSERT_GE(fd, 0);
  ::unlink(path);
  constexpr size_t kBytes = 256 * 1024;
  ASSERT_EQ(::ftruncate(fd, kBytes), 0);
  void* mapping = ::mmap(nullptr, kBytes, PROT_READ, MAP_SHARED, fd, 0);
  ASSERT_NE(mapping, MAP_FAILED);
  MemoryRegion file = must(pair.a.pd.register_memory(mapping, kBytes, 0));
  ASSERT_EQ(::ftruncate(fd, 64 * 1024), 0);
  const ScatterGatherElement sge = file.sge(0, kBytes);
  SendWorkRequest wr;
  wr.opcode = SendOpcode::kWrite;
  wr.flags = model::kSignaled;
  wr.sges = {&sge, 1};
  wr.remote_address = pair.b.region.address();
  wr.remote_key = pair.b.region.rkey();
  must(pair.a.qp.post_send(wr));
  EXPECT_EQ(pair.a.completion().status, CompletionStatus::kLocalProtectionError);
  ::munmap(mapping, kBytes);
  ::close(fd);
}

TEST(Faults, ATargetThatShrinksIsARemoteErrorAndTheTargetLives) {
  Pair pair;
  char path[] = "/tmp/farverbs-shrink-XXXXXX";
  const int fd = ::mkstemp(path);
  ASSERT_GE(fd, 0);
  ::unlink(path);
  constexpr size_t kBytes = 256 * 1024;
  ASSERT_EQ(::ftruncate(fd, kBytes), 0);
  void* mapping = ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  MemoryRegion file = must(pair.b.pd.register_memory(mapping, kBytes, kAllAccess));
  ASSERT_EQ(::ftruncate(fd, 64 * 1024), 0);
  must(pair.a.post(SendOpcode::kWrite, 1, 0, kBytes, &file, 0));
  const CompletionStatus status = pair.a.completion().status;
  EXPECT_TRUE(status == CompletionStatus::kRemoteOperationError ||
              status == CompletionStatus::kRemoteAccessError)
      << model::to_string(status);
  ::munmap(mapping, kBytes);
  ::close(fd);
}

TEST(Faults, AReceiveThatIsTooSmallFailsBothEnds) {
  Pair pair;
  must(pair.b.post_receive(3, 0, 10));
  must(pair.a.post(SendOpcode::kSend, 1, 0, 100, nullptr, 0));
  const CompletionStatus status = pair.a.completion().status;
  EXPECT_TRUE(status == CompletionStatus::kRemoteInvalidRequest ||
              status == CompletionStatus::kRemoteOperationError)
      << model::to_string(status);
  EXPECT_EQ(pair.b.completion().status, CompletionStatus::kLocalLengthError);
}

TEST(Faults, AReceiverThatIsLateIsWaitedFor) {
  ConnectOptions connect;
  connect.min_rnr_timer = 1;  // 10 us
  Pair pair({}, connect);
  must(pair.a.post(SendOpcode::kSend, 1, 0, 100, nullptr, 0));
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  must(pair.b.post_receive(2, 0, 100));
  EXPECT_EQ(pair.b.completion().status, CompletionStatus::kSuccess);
  EXPECT_EQ(pair.a.completion().status, CompletionStatus::kSuccess);
  EXPECT_GT(pair.a.qp.counters().rnr_naks_received, 0u);
}

TEST(Faults, ACompletionQueueThatOverflowsTakesItsQpDownAndSaysSo) {
  EndOptions options;
  options.cq_capacity = 4;
  Pair pair(options);
  for (int i = 0; i < 20; ++i) {
    if (!pair.a.post(SendOpcode::kWrite, 1, 0, 64, &pair.b.region, 0).ok()) break;
  }
  std::optional<AsyncEvent> event;
  for (int i = 0; i < 1'000 && !(event = pair.a.device.poll_async_event()); ++i) {
    pair.a.device.progress();
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  ASSERT_TRUE(event.has_value());
  EXPECT_EQ(event->type, AsyncEventType::kCqError);
  EXPECT_TRUE(pair.a.cq.in_error());
  EXPECT_EQ(pair.a.qp.state(), QpState::kErr);
  EXPECT_EQ(pair.b.qp.state(), QpState::kRts);
}

TEST(Faults, BadRequestsAreRefusedWithTheFieldsName) {
  Pair pair;
  auto message = [](const Result<void>& result) {
    return result.ok() ? std::string("accepted") : result.error().message;
  };
  End fresh{EndOptions{}};
  EXPECT_NE(message(fresh.post(SendOpcode::kSend, 1, 0, 1, nullptr, 0)).find("RTS"),
            std::string::npos);
  std::array<ScatterGatherElement, 5> sges;
  sges.fill(pair.a.region.sge(0, 1));
  SendWorkRequest wr;
  wr.sges = sges;
  EXPECT_NE(message(pair.a.qp.post_send(wr)).find("sge"), std::string::npos);
  QpAttributes a;
  a.state = QpState::kRtr;
  EXPECT_NE(message(fresh.qp.modify(a, model::kAttrState)).find("RESET"), std::string::npos);
  EXPECT_EQ(fresh.qp.state(), QpState::kReset);
  auto region = pair.a.pd.register_memory(pair.a.memory.data(), 10, model::kRemoteWrite);
  ASSERT_FALSE(region.ok());
  EXPECT_EQ(region.error().code, EINVAL);
  DeviceOptions nowhere;
  nowhere.address = *IpAddress::parse("203.0.113.77");
  auto device = Device::open(nowhere);
  ASSERT_FALSE(device.ok());
  EXPECT_EQ(device.error().code, EADDRNOTAVAIL);
  EXPECT_NE(device.error().message.find("203.0.113.77"), std::string::npos);
}

TEST(Faults, MemoryIsLeftAloneOnceItsRegionIsGone) {
  Pair pair;
  std::vector<std::byte> memory(1 << 20, std::byte{0});
  std::optional<MemoryRegion> region =
      must(pair.b.pd.register_memory(memory.data(), memory.size(), kAllAccess));
  fill(pair.a.memory, 9);
  for (int i = 0; i < 8; ++i) {
    must(pair.a.post(SendOpcode::kWrite, 1, 0, 1 << 20, &*region, 0));
  }
  std::this_thread::sleep_for(std::chrono::microseconds(200));
  must(region->deregister());
  std::fill(memory.begin(), memory.end(), std::byte{0xEE});
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  for (const std::byte b : memory) ASSERT_EQ(b, std::byte{0xEE});
}

// --- Several processes ---

// A child process that serves one QP whose memory begins with `tag`, until it is killed. Talks over
// a socket pair: its QP's address and key out, the peer's in.
struct Wire {
  QpAddress qp;
  uint64_t address;
  uint32_t key;
};

struct Child {
  pid_t pid = -1;
  int fd = -1;

  explicit Child(uint8_t tag) {
    int ends[2];
    if (::socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends) != 0) std::abort();
    pid = ::fork();
    if (pid == 0) {
      ::close(ends[0]);
      serve(ends[1], tag);
    }
    ::close(ends[1]);
    fd = ends[0];
  }
  ~Child() {
    kill_now();
    ::close(fd);
  }
  void kill_now() {
    if (pid < 0) return;
    ::kill(pid, SIGKILL);
    ::waitpid(pid, nullptr, 0);
    pid = -1;
  }
  Wire meet(const End& end) {
    Wire theirs{};
    const Wire ours{end.qp.address(), 0, 0};
    EXPECT_EQ(::write(fd, &ours, sizeof ours), static_cast<ssize_t>(sizeof ours));
    EXPECT_EQ(::read(fd, &theirs, sizeof theirs), static_cast<ssize_t>(sizeof theirs));
    return theirs;
  }

 private:
  [[noreturn]] static void serve(int fd, uint8_t tag) {
    End end{EndOptions{}};
    std::fill(end.memory.begin(), end.memory.end(), static_cast<std::byte>(tag));
    Wire peer{};
    if (::read(fd, &peer, sizeof peer) != sizeof peer) ::_exit(1);
    must(end.qp.connect(peer.qp));
    const Wire ours{end.qp.address(), end.region.address(), end.region.rkey().value()};
    if (::write(fd, &ours, sizeof ours) != sizeof ours) ::_exit(1);
    for (;;) ::pause();
  }
};

Result<void> read_from(End& end, const Wire& peer, uint32_t length) {
  const ScatterGatherElement sge = end.region.sge(0, length);
  SendWorkRequest wr;
  wr.opcode = SendOpcode::kRead;
  wr.flags = model::kSignaled;
  wr.sges = {&sge, 1};
  wr.remote_address = peer.address;
  wr.remote_key = MemoryKey(peer.key);
  return end.qp.post_send(wr);
}

TEST(Processes, ShareOneAddressAndSurviveEachOthersDeaths) {
  constexpr int kChildren = 4;
  // The children first: a process with threads must not fork.
  std::vector<std::unique_ptr<Child>> children;
  for (int i = 0; i < kChildren; ++i) {
    children.push_back(std::make_unique<Child>(static_cast<uint8_t>(10 + i)));
  }
  std::vector<std::unique_ptr<End>> ends;
  std::vector<Wire> wires;
  for (auto& child : children) {
    ends.push_back(std::make_unique<End>(EndOptions{}));
    wires.push_back(child->meet(*ends.back()));
    must(ends.back()->qp.connect(wires.back().qp));
  }
  for (const int victim : {1, 0, 3}) {
    for (int i = 0; i < kChildren; ++i) {
      if (children[static_cast<size_t>(i)]->pid < 0) continue;
      End& end = *ends[static_cast<size_t>(i)];
      must(read_from(end, wires[static_cast<size_t>(i)], 1'000));
      EXPECT_EQ(end.completion().status, CompletionStatus::kSuccess);
      EXPECT_EQ(end.memory[999], static_cast<std::byte>(10 + i));
    }
    children[static_cast<size_t>(victim)]->kill_now();
  }
  must(read_from(*ends[2], wires[2], 1'000));
  EXPECT_EQ(ends[2]->completion().status, CompletionStatus::kSuccess);
}

TEST(Processes, AKilledPeerIsARetryError) {
  Child child(1);
  End end{EndOptions{}};
  const Wire wire = child.meet(end);
  ConnectOptions connect;
  connect.timeout = 10;  // 4 ms
  connect.retry_count = 3;
  must(end.qp.connect(wire.qp, connect));
  must(read_from(end, wire, 100));
  EXPECT_EQ(end.completion().status, CompletionStatus::kSuccess);
  child.kill_now();
  must(read_from(end, wire, 100));
  EXPECT_EQ(end.completion().status, CompletionStatus::kRetryExceeded);
}

TEST(Processes, AStoppedPeerIsWaitedForUpToItsRetries) {
  Child child(7);
  End end{EndOptions{}};
  const Wire wire = child.meet(end);
  must(end.qp.connect(wire.qp));
  ::kill(child.pid, SIGSTOP);
  must(read_from(end, wire, 1 << 20));
  std::this_thread::sleep_for(std::chrono::milliseconds(150));
  ::kill(child.pid, SIGCONT);
  EXPECT_EQ(end.completion().status, CompletionStatus::kSuccess);
  EXPECT_EQ(end.memory[(1 << 20) - 1], std::byte{7});
}

}  // namespace
}  // namespace farverbs::verbs
