package patch_test

import (
	"fmt"

	"github.com/settlement-ledger/ledger/builtins/patch"
)

func ExampleParse() {
	changes, err := patch.Parse(`*** Begin Patch
*** Update File: greeting.txt
@@ English
-Hello
+Good morning
*** End Patch`)
	if err != nil {
		fmt.Println(err)
		return
	}
	update := changes[0].(patch.Update)
	after, err := update.Apply("German\nHello\nEnglish\nHello\n")
	fmt.Printf("%s: %q, %v\n", update.Path, after, err)
	_, err = update.Apply(after)
	fmt.Println(err)
	// Output:
	// greeting.txt: "German\nHello\nEnglish\nGood morning\n", <nil>
	// line 3 of the patch: the lines of the hunk begin at line 2 of the file, above the place that the previous hunk or @@ reached: give hunks in the order of the file
}
