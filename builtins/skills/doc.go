// Package skills makes the tool skill, which loads instructions from SKILL.md files.
//
// A skill is a folder NAME with a file SKILL.md: front matter with the keys name and
// description, and instructions in Markdown as its body. The folder may have further
// files, to which the instructions refer. [Load] reads the skills of a user and of a
// project as a [Catalog]; a skill of the project replaces a skill of the user. [Tool]
// makes the tool. Its description lists the skills for each turn, and a call returns the
// instructions of one.
//
// # Promises
//
//   - The tool neither lists nor reads a skill that a rule denies. A call for such a skill
//     is denied, whether the skill exists or not.
//   - A person who decides a request sees the instructions that the call returns.
//   - An invalid SKILL.md is refused with a reason. Other skills are not affected.
//   - A symbolic link in a project does not lead out of it.
//   - Load and a call are bounded, also for a folder of ten thousand files: by entries
//     and bytes of a folder, by the number of skills, and by the bytes of a file. The
//     description of the tool is bounded too.
//   - A changed file takes effect in the next turn, because each turn loads the folders.
//
// # Concurrency
//
// A Catalog is immutable. The tool may be called by several goroutines. The package
// starts no goroutine.
//
// # Errors
//
// Tool returns [ErrNoPermission]. The tool returns a *domain.Failure for the model, and
// an error of the permission.Evaluator unchanged.
//
// Package frontmatter reads the files and package permission decides requests. The laws
// are in the _test.go files, an example is in example_test.go.
package skills
