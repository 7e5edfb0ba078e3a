// The main program of the unit tests, for Catch2 2 and 3. Every test case is tagged with its file,
// so that `unit_tests '[#layout_test]'` runs tests/layout_test.cpp; a selection that matches no
// test case is a failure.
#if __has_include(<catch2/catch_session.hpp>)
#include <catch2/catch_session.hpp>
#else
#define CATCH_CONFIG_RUNNER
#include <catch2/catch.hpp>
#endif

int main(int argc, char** argv) {
  Catch::Session session;
  session.configData().filenamesAsTags = true;
#ifdef CATCH_CONFIG_RUNNER
  session.configData().warnings = Catch::WarnAbout::NoTests;
#endif
  return session.run(argc, argv);
}
