// Package duckdbtest reads exported tables with DuckDB and compares them with a fold of the
// log. It has tests only. It is a module of its own, because DuckDB needs cgo and downloads
// libraries of more than 1 GB; .ci/duckdb runs it.
package duckdbtest
