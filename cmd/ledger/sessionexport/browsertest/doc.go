// Package browsertest opens the pages of package sessionexport in Chromium.
//
// It is a module of its own, so that the ledger does not require the client of the
// browser. .ci/browser runs its tests.
package browsertest
