// Package where parses the condition of --where into SQL with parameters.
//
// A condition compares named fields with values, and joins comparisons:
//
//		tool = bash and (outcome != succeeded or took > 1.5s) and not input ~ "rm *"
//
//	  - The comparisons are = != < <= > >= and ~, which reports whether a text contains another
//	    one. A text of ~ with * is a pattern of the whole value, in which * is any text. Case
//	    of ASCII letters does not matter to ~, and matters to the others.
//	  - and binds stronger than or, and not stronger than and. A flag alone is a condition.
//	  - A text needs quotes, " or ', if it has spaces, quotes or one of ( ) = ! < > ~ or a comma. In quotes \"
//	    is a quote, \\ a backslash, \n a line end and \t a tab. \* is a * that is no pattern.
//	  - A number is 3 or 2.5, a duration 250ms, 1.5s, 2h or 3d, a time what --since takes. A time
//	    that names a day means all of it: at = today holds at every time of today.
//	  - null is the absent value. An absent value equals null alone, and every other comparison
//	    with it is false. != is the opposite of =.
//	  - A field of several values compares each of them, and holds if one fits. Its != holds if
//	    none fits.
//
// # Promises
//
//   - No text of a condition is part of the SQL: values are parameters, and fields and
//     comparisons come from tables of the program.
//   - Parse never panics. A text of more than [MaxBytes], [MaxComparisons] comparisons or
//     [MaxDepth] levels is an error.
//
// # Errors
//
// Each error of Parse is an [*Error] with the column of the fault, counted in characters
// from 1.
//
// Package projections/index has the fields of its tables and executes the conditions.
package where
