// Package patch parses the patch format of apply_patch and applies updates to texts.
//
// A patch lies between the lines *** Begin Patch and *** End Patch. It has one section
// for each file, and [Parse] returns a [Change] for each section: an [Add], a [Delete] or
// an [Update]. An Update has hunks, and may move the file:
//
//	*** Begin Patch
//	*** Update File: path
//	*** Move to: other path
//	@@ a line above the hunk
//	 an unchanged line
//	-a removed line
//	+an inserted line
//	*** End of File
//	*** Add File: path
//	+a line
//	*** Delete File: path
//	*** End Patch
//
// A [Hunk] is found by its lines and not by line numbers. Its old lines are the unchanged
// and the removed ones. Each line after @@ is a header: a line of the file above the
// hunk. Several headers narrow the place down one after the other. The @@ of the first
// hunk is optional. [Update.Apply] applies the hunks to the text of a file.
//
// # Promises
//
//   - Parse accepts a patch in a shell heredoc (<<'EOF', cat <<EOF), a patch with CRLF
//     line ends and a patch with a byte order mark. It returns an error for every other
//     text around the markers and for every line that the format does not have.
//   - Hunks apply in the order of the patch, each below the previous one. A hunk applies
//     at the first place where its old lines match. The whole rest of the file is
//     searched for an exact match first, then without trailing white space, then
//     without leading and trailing white space, then with typographic dashes, quotes
//     and spaces read as their ASCII forms.
//   - A hunk that ends with *** End of File applies at the end of the file only.
//   - A hunk without old lines inserts below its last header, or at the end of the file
//     if it has no header or ends with *** End of File.
//   - Unchanged lines keep every byte of the file, line end included, whatever the patch
//     has in their place. An inserted line is taken literally and gets the line end of
//     the line of the file above it, removed or not. A byte order mark stays.
//   - Every line that a patch writes has a line end, also the last line of a file.
//   - A hunk whose old lines are gone fails. Applying a patch again is therefore an
//     error, unless its hunks remove nothing and their unchanged lines still follow each
//     other.
//   - Time and memory are bounded by [MaxPatch], [MaxChanges], a limit on the lines of a
//     text and a limit on the comparisons of lines.
//
// # Concurrency
//
// All functions may be called by several goroutines at once. The package starts no
// goroutine and uses no file.
//
// # Errors
//
// Parse returns [ErrMalformed], [ErrEmpty] and [ErrLimit]. Apply returns [ErrMismatch]
// and ErrLimit. The texts name the line of the patch.
//
// Package builtins resolves the paths, asks for permission and writes the files. The laws
// are in parse_test.go and apply_test.go, an example is in example_test.go.
package patch
