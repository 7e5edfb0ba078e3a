// Files that are not complete: whole or gone, under names that nobody can guess.
#include "autopar/unfinished.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cerrno>
#include <chrono>
#include <filesystem>
#include <map>
#include <set>

#include "autopar/files.hpp"
#include "folder.hpp"

namespace autopar::unfinished_test {

using namespace testing;
namespace fs = std::filesystem;

namespace {

std::set<std::string> names_in(const fs::path& folder) {
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) names.insert(entry.path().filename());
  return names;
}

void write_part(const std::string& part) {
  const int file = open_new(part);
  REQUIRE(file >= 0);
  REQUIRE(::write(file, "text", 4) == 4);
  ::close(file);
}

}  // namespace

TEST_CASE("unfinished files are kept together or go with their folders", "[files]") {
  const Folder folder;
  for (const bool kept : {false, true}) {
    UnfinishedFiles files;
    const auto first = files.add(folder / "new/sub/a.txt");
    const auto second = files.add(folder / "new/b.txt");
    REQUIRE(first.ok());
    REQUIRE(second.ok());
    write_part(*first);
    write_part(*second);
    CHECK_FALSE(fs::exists(folder / "new/b.txt"));
    if (kept) CHECK(files.keep().ok());
  }
  CHECK(names_in(folder / "new") == std::set<std::string>{"sub", "b.txt"});
  CHECK(*read_file(folder / "new/sub/a.txt") == "text");
  {
    UnfinishedFiles files;
    REQUIRE(files.make_folder(folder / "other").ok());
    REQUIRE(write_file(files, folder / "other/c.txt", "c").ok());
    CHECK(names_in(folder / "other").size() == 1);
  }
  CHECK_FALSE(fs::exists(folder / "other"));
}

TEST_CASE("what was there stays until all files that come in its place are kept", "[files]") {
  const Folder folder;
  const auto texts = [&] {
    std::map<std::string, std::string> found;
    for (const std::string& name : names_in(folder / "")) found[name] = *read_file(folder / name);
    return found;
  };
  const auto write_new = [&](UnfinishedFiles& files) {
    for (const char* name : {"a", "b", "d", "e"}) {
      REQUIRE(write_file(files, folder / name, "new").ok());
    }
    files.replace(folder / "c");
    files.replace(folder / "absent");
    files.take_back(folder / "d");
    files.rename(folder / "e", folder / "f");
    CHECK(*read_file(files.part_of(folder / "a")) == "new");
    CHECK(files.part_of(folder / "d").empty());
    CHECK(files.part_of(folder / "e").empty());
    CHECK(*read_file(files.part_of(folder / "f")) == "new");
  };
  for (const char* name : {"a", "c", "d"}) folder.write(name, "old");
  const auto before = texts();
  {
    UnfinishedFiles files;
    write_new(files);
    // One that cannot be written leaves nothing behind, and the others as they are.
    const std::size_t count = names_in(folder / "").size();
    const auto fail = [](int) { return ENOSPC; };
    const Status failed = write_file(files, folder / "c", fail);
    REQUIRE(!failed.ok());
    CHECK(failed.error().message.find(folder / "c: cannot be written") == 0);
    CHECK(names_in(folder / "").size() == count);
    CHECK(*read_file(folder / "a") == "old");
  }
  CHECK(texts() == before);
  // A name that a folder has: no other file is given its own.
  {
    UnfinishedFiles files;
    write_new(files);
    fs::create_directories(folder / "g");
    REQUIRE(write_file(files, folder / "g", "new").ok());
    const Status kept = files.keep();
    REQUIRE(!kept.ok());
    CHECK(kept.error().message.find(folder / "g: cannot be written") == 0);
  }
  fs::remove(folder / "g");
  CHECK(texts() == before);
  UnfinishedFiles files;
  write_new(files);
  REQUIRE(files.keep().ok());
  CHECK(texts() ==
        std::map<std::string, std::string>{{"a", "new"}, {"b", "new"}, {"d", "old"}, {"f", "new"}});
}

TEST_CASE("a file that waits under a known name is not written to", "[files]") {
  const Folder folder;
  const std::string victim = folder.write("victim.txt", "precious");
  // What somebody can prepare who knows the number of the process.
  fs::create_symlink(victim, folder / ("a.txt.part" + std::to_string(getpid())));
  REQUIRE(write_file_atomically(folder / "a.txt", "new").ok());
  CHECK(*read_file(victim) == "precious");
  CHECK(*read_file(folder / "a.txt") == "new");
  UnfinishedFiles files;
  const auto part = files.add(folder / "b.txt");
  REQUIRE(part.ok());
  CHECK(*part != *files.add(folder / "b.txt"));
  fs::create_symlink(victim, *part);
  CHECK(open_new(*part) < 0);
  CHECK(errno == EEXIST);
}

TEST_CASE("what an ended process has left goes when the file is written again", "[files]") {
  const Folder folder;
  const std::string old = folder.write("a.txt.part-0123456789abcdef", "half");
  const std::string young = folder.write("a.txt.part-fedcba9876543210", "half");
  const std::string other = folder.write("a.txt.part-of-a-book.txt", "mine");
  const std::string beside = folder.write("b.txt.part-0123456789abcdef", "half");
  const auto long_ago = fs::file_time_type::clock::now() - std::chrono::hours(25);
  for (const std::string& path : {old, other, beside}) fs::last_write_time(path, long_ago);
  REQUIRE(write_file_atomically(folder / "a.txt", "new").ok());
  CHECK_FALSE(fs::exists(old));
  CHECK(fs::exists(young));
  CHECK(fs::exists(other));
  CHECK(fs::exists(beside));
}

TEST_CASE("an interrupted program leaves nothing unfinished", "[files]") {
  const Folder folder;
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    UnfinishedFiles files;
    const auto part = files.add(folder / "made/a.txt");
    if (!part || open_new(*part) < 0 || names_in(folder / "made").size() != 1) _exit(1);
    remove_unfinished();
    _exit(fs::exists(folder / "made") ? 2 : 0);
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  REQUIRE(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
}

}  // namespace autopar::unfinished_test
