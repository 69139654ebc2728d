#include "farverbs/base/fault_guard.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

namespace farverbs {
namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define FARVERBS_SANITIZER_HANDLES_FAULTS 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define FARVERBS_SANITIZER_HANDLES_FAULTS 1
#endif
#endif

// A sanitizer's own handler was there before ours: it reports the fault and exits.
bool died_of(int status, int signal) {
#ifdef FARVERBS_SANITIZER_HANDLES_FAULTS
  return !WIFEXITED(status) || WEXITSTATUS(status) != 0 || WTERMSIG(status) == signal;
#else
  return WIFSIGNALED(status) && WTERMSIG(status) == signal;
#endif
}
auto died_of(int signal) {
  return [signal](int status) { return died_of(status, signal); };
}

constexpr size_t kPage = 4096;

// Two pages of a file that loses its second one.
struct TruncatedMapping {
  TruncatedMapping() {
    char name[] = "/tmp/farverbs_fault_guard_XXXXXX";
    const int fd = mkstemp(name);
    unlink(name);
    EXPECT_EQ(ftruncate(fd, 2 * kPage), 0);
    memory =
        static_cast<char*>(mmap(nullptr, 2 * kPage, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
    EXPECT_NE(memory, MAP_FAILED);
    std::memset(memory, 'a', 2 * kPage);
    EXPECT_EQ(ftruncate(fd, kPage), 0);
    close(fd);
  }
  ~TruncatedMapping() { munmap(memory, 2 * kPage); }
  char* memory;
};

// A plain loop: sanitizers replace memcpy.
void copy(char* to, const volatile char* from, size_t length) {
  for (size_t i = 0; i < length; ++i) to[i] = from[i];
}

TEST(FaultGuard, ACopyFromATruncatedFileFailsAndTheProcessLives) {
  install_fault_guard();
  TruncatedMapping file;
  std::vector<char> to(2 * kPage, 'x');
  for (int round = 0; round < 3; ++round) {  // the signal is not left blocked
    EXPECT_TRUE(guarded([&] { copy(to.data(), file.memory, kPage); }));
    EXPECT_FALSE(guarded([&] { copy(to.data(), file.memory, 2 * kPage); }));
  }
  EXPECT_EQ(to[kPage - 1], 'a') << "what was there was copied";
  EXPECT_EQ(to[kPage], 'x');
  EXPECT_FALSE(guarded([&] { std::memcpy(to.data(), file.memory + kPage, kPage); }));
}

TEST(FaultGuard, UnmappedAndProtectedMemoryFail) {
  install_fault_guard();
  auto* page = static_cast<volatile char*>(
      mmap(nullptr, kPage, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  EXPECT_TRUE(guarded([&] { (void)page[0]; }));
  EXPECT_FALSE(guarded([&] { page[0] = 1; }));
  munmap(const_cast<char*>(page), kPage);
  EXPECT_FALSE(guarded([&] { (void)page[0]; }));
}

TEST(FaultGuard, EachThreadHasItsOwn) {
  install_fault_guard();
  TruncatedMapping file;
  std::atomic<int> failures{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      char to[16];
      for (int i = 0; i < 200; ++i) {
        if (!guarded([&] { copy(to, file.memory + kPage, sizeof to); })) failures.fetch_add(1);
        if (!guarded([&] { copy(to, file.memory, sizeof to); })) failures.fetch_add(1'000'000);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(failures.load(), 800);
}

TEST(FaultGuardDeathTest, AFaultOutsideOfTheGuardStillKillsWithItsSignal) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  install_fault_guard();
  EXPECT_EXIT(
      {
        TruncatedMapping file;
        char byte;
        guarded([&] { copy(&byte, file.memory + kPage, 1); });
        copy(&byte, file.memory + kPage, 1);
        _exit(0);
      },
      died_of(SIGBUS), "");
  EXPECT_EXIT(
      {
        void* page = mmap(nullptr, kPage, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        *static_cast<volatile char*>(page) = 1;
        _exit(0);
      },
      died_of(SIGSEGV), "");
}

TEST(FaultGuardDeathTest, ASignalThatWasSentIsNoFault) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  install_fault_guard();
  EXPECT_EXIT(
      {
        guarded([] { raise(SIGSEGV); });
        _exit(0);
      },
      died_of(SIGSEGV), "");
}

// Whoever handled faults before is asked about those that are not ours.
volatile sig_atomic_t asked = 0;
void answer_and_exit(int, siginfo_t* info, void*) {
  asked = asked + 1;
  _exit(info->si_addr != nullptr ? 42 : 1);
}
void set_handler(void (*handler)(int, siginfo_t*, void*)) {
  struct sigaction action {};
  action.sa_sigaction = handler;
  action.sa_flags = SA_SIGINFO;
  sigaction(SIGSEGV, &action, nullptr);
}

void fault() {
  void* page = mmap(nullptr, kPage, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  *static_cast<volatile char*>(page) = 1;
}

TEST(FaultGuardDeathTest, APreviousHandlerGetsTheFault) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        set_handler(answer_and_exit);
        install_fault_guard();
        fault();
        _exit(0);
      },
      testing::ExitedWithCode(42), "");
}

struct sigaction beneath;
void pass_on(int signal, siginfo_t* info, void* context) {
  beneath.sa_sigaction(signal, info, context);
}

TEST(FaultGuardDeathTest, AHandlerThatChainsToUsMakesNoCircle) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        set_handler(answer_and_exit);
        install_fault_guard();
        sigaction(SIGSEGV, nullptr, &beneath);
        set_handler(pass_on);
        install_fault_guard();
        fault();
        _exit(0);
      },
      testing::ExitedWithCode(42), "");
}

}  // namespace
}  // namespace farverbs
