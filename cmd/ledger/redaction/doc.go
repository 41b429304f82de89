// Package redaction hides secrets in texts that leave the ledger.
//
// A [Redactor] replaces each secret that one of the [Rules] finds by a mark such as
// [hidden: github-token 1]. The number is equal for equal secrets of one Redactor, so a
// reader sees that two secrets are the same and not what they are. Home folders become
// "~". The rules know secrets by their form, such as the prefix of a token, or by the name
// that they are assigned to. Package secrets, in contrast, removes secrets whose values
// are known.
//
// # Promises
//
//   - Text of its own result returns it unchanged, and a text without a finding is
//     returned as it is.
//   - A JSON document stays valid, whether Text or JSON read it. JSON also finds secrets
//     that JSON escapes, and changes only the strings with a finding.
//   - A [Writer] writes what Text returns for all of its input, wherever the input is cut,
//     and holds at most 128 KiB of it.
//   - The time is linear in the length of the text.
//
// A secret is taken to be at most 16 KiB long; of a longer one the beginning is hidden.
//
// # Concurrency
//
// A Redactor and its Writers belong to one goroutine.
//
// docs/redaction.md lists the rules; a test compares it with Rules.
package redaction
