// Package statistics sums calls, replies and offers up by groups, for ledger stats.
//
// [Collect] reads the calls that a query selects from the index and returns one [Group] for
// each tool, agent, model, session or day. [ReadPrices] reads a table of prices, by which
// [Collect] computes costs.
//
// # Definitions
//
//   - A rate is a part of the settled calls of a group.
//   - A percentile is by nearest rank: p95 of n values is the smallest value that at least
//     95 % of the values do not exceed, which is the one at place ceil(0.95 n) in ascending
//     order. It is always one of the values. Without a value there is no percentile.
//   - The run time is that of calls with a start and an end on record: until the tool returned,
//     if that is recorded, or else until the settlement. Lost calls have none. The wait is that of calls with a request or a question.
//   - A token belongs to a reply, and not to a tool: groups of tools have none.
//   - A cost is exact: prices are decimal numbers for a million tokens, and sums of them are
//     not rounded. A table shows them rounded to four digits, half away from zero.
//
// # Errors
//
// A price table that is not valid, and an unknown kind of group, are fault.Error values with
// exit code 2.
//
// Package projections/index has the facts, package views prints the other lists.
package statistics
