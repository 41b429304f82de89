// Package spill holds maps that do not fit into memory in a temporary database.
//
// A [Map] keeps the values that were used last in memory, up to a limit, and moves all
// others into a [Store], a Pebble database in a temporary folder. A Map without a Store
// keeps all values in memory, so a fold can use the same code for a small log and for a
// large one.
//
// # Promises
//
//   - A Map returns the value that was put last, from memory or from its Store.
//   - A Map with a Store holds at most the weight of its limit in memory after
//     [Map.Trim].
//   - Close removes the folder of a Store.
//
// # Concurrency
//
// A Store and its Maps belong to one goroutine. A Map without a Store may be read by
// several goroutines while none changes it.
//
// # Errors
//
// The first error of the disk stays in the Store, and [Store.Err] returns it. After an
// error the Maps of the Store are not complete, so the caller stops its work.
package spill
