// Package web makes the tools that reach the internet: webfetch, websearch and
// codesearch.
//
// [Tools] makes them from a [Config]. webfetch requests a URL and returns the page as
// Markdown, text or HTML. websearch and codesearch send a query to a [SearchProvider],
// such as [Exa]. All three ask a [permission.Evaluator] first. The description that the model reads is
// in the .md file of the same name.
//
// # Promises
//
//   - A tool asks for permission before its first request. Before the answer, a call does
//     at most a lookup of a host name.
//   - The resource of webfetch is the URL in canonical form. A rule that denies also
//     matches the URL as the model wrote it, and the targets of redirects.
//   - A tool connects only to an address that it checked before. It does not resolve the
//     name again and uses no proxy of the environment. A private address needs the
//     permission private_address for ADDRESS:PORT. See isPrivate for the addresses.
//   - A redirect is followed to http and https only, at most 10 times. A redirect to a
//     private address is refused unless rules or approvals allow that address.
//   - A tool refuses a URL with a user name or password before it asks for permission. The
//     user name and the password get into no text, title or record of this package.
//   - A page is at most 5 MiB, compressed and decompressed. The timeout of a fetch covers
//     the lookup, all requests, the body and the conversion, but not the time in which a
//     person decides.
//   - The conversion of a page takes time and memory in proportion to its size, whatever
//     the page contains, and ends with the timeout.
//   - A search ends after 25 seconds or 256 KiB. The key of Exa gets into no result,
//     error or printed value, and is not sent to the target of a redirect.
//   - websearch and codesearch are offered only where the machine has the environment
//     variable EXA_API_KEY, unless the Config has another provider than Exa.
//
// # Concurrency
//
// The tools and an Exa may be called by several goroutines at once. The package starts no
// goroutine of its own; net/http does, and they end with the call.
//
// # Errors
//
// Tools and NewExa return [ErrBadConfig]. A tool returns a *domain.Failure with a reason
// for the model, a *domain.Denied or *domain.Declined as the Evaluator returned it, the cause
// of its context, or an error of the Evaluator for the operator.
//
// Package permission decides requests, and the registry stores output over the limits.
// The laws are in the _test.go files, an example is in example_test.go.
package web
