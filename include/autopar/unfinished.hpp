// Files that are not complete yet: they have another name, and go unless they are kept.
//
//   UnfinishedFiles files;
//   Result<std::string> part = files.add("out/plan.onnx");   // "out/plan.onnx.part-1a2b3c4d-..."
//   ...                                                      // open_new(*part), write, close
//   return files.keep();                                     // fsync, rename
//
// What is not kept goes when the object ends, and in any other thread's remove_unfinished(), which
// a program calls when it is interrupted. What a killed process or a machine without power has left
// goes when the same file is written again.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "autopar/support.hpp"

namespace autopar {

// From now on no file that this process writes replaces this one, which it has read: a model, or
// the program of a plan. What is no file, or not there, is let be.
void keep_from_replacing(const std::string& path);
// Errors (kInput): there is such a file.
Status check_replaceable(const std::string& path);

// For commands that work for long before they write: whether a file can be written at `path`, or
// files into the folder, which need not be there yet, as far as it shows now. Nothing is changed.
// An empty path is none. Errors name the place and the reason: a parent that is a file, a folder
// that may not be written to, a name that is too long, a folder of that name; check_replaceable().
Status check_writable(const std::string& path);
Status check_folder_writable(const std::string& folder);

class UnfinishedFiles {
 public:
  UnfinishedFiles();
  ~UnfinishedFiles();
  UnfinishedFiles(const UnfinishedFiles&) = delete;
  UnfinishedFiles& operator=(const UnfinishedFiles&) = delete;

  // The name under which the file at `path` is to be written, which nobody can guess; makes the
  // folder. Errors (kInput): the folder cannot be made; check_replaceable().
  Result<std::string> add(const std::string& path);
  // The name under which the file that was added for `path` is now; empty: none was.
  std::string part_of(const std::string& path);
  // The file that was added for `path` is none of them any more, or is to be at `other`.
  void take_back(const std::string& path);
  void rename(const std::string& path, const std::string& other);
  // What is at `path` now goes before the others get their names.
  void replace(const std::string& path);
  // Folders that are missing, which go if they are empty then.
  Status make_folder(const std::string& folder);
  // Writes everything to the disk and gives the files their names, in the order in which they were
  // added: of each the whole file appears or nothing, also where the machine ends. Errors: a name
  // that is a folder's, for which nothing is given a name; one that cannot be given, when the rest
  // goes.
  Status keep();

 private:
  using Parts = std::vector<std::pair<std::string, std::string>>;  // name now, name to be

  friend bool remove_unfinished();
  void remove();                                  // under the lock, as the next
  Parts::iterator find(const std::string& path);  // the latest

  Parts parts_;
  std::vector<std::string> replaced_;
  std::vector<std::string> folders_;  // that were made, outermost first
};

// Removes what is unfinished in this process, of all threads; nothing can be added or kept from
// then on, who tries waits for ever: the process is about to end. False, and nothing is done, where
// this thread is adding or keeping some just now.
bool remove_unfinished();

// A new file, for writing; refuses one that is there, and links. The descriptor, or -1 with errno.
int open_new(const std::string& path);

}  // namespace autopar
