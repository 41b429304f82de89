// Package plugins installs the plugins of one layer. A plugin that fails does not affect
// the other plugins.
//
// A [Plugin] offers tools. A [Host] installs the plugin once, in one layer of a registry,
// and passes it a [PluginScope] and a [PluginLocation]. The plugin registers its tools in
// the PluginScope. The PluginLocation has the folder, the settings, the environment, the
// process runner and the permission gate of the place where the plugin runs. A plugin
// reaches nothing else of the registry, and nothing of the log.
//
// The tools of a plugin may change while sessions run. The host calls a plugin that is a
// [Refresher] before each turn is materialized and before the calls of a reply are
// settled. The plugin puts a change into effect with [PluginScope.Replace], which
// registers the new generation of a part before it closes the old one, so that an
// unchanged name is never absent. A plugin that is a [Stopper] releases its resources when
// the host is closed.
//
// # Promises
//
//   - Plugins are installed in order, and closed in reverse order.
//   - If Install fails, panics, ends its goroutine or exceeds its deadline, the host
//     closes the scope of the plugin, records the failure as a refusal of "plugin NAME",
//     and installs the next plugin.
//   - If Refresh panics, ends its goroutine or exceeds its deadline, the host closes the
//     scope and records the failure too. If Refresh returns an error, the tools stay in
//     effect, and the host records the error once until it changes.
//   - A closed scope registers nothing, even for a plugin that still runs.
//   - Two plugins of one host have different names. The host refuses the second plugin of
//     a name.
//
// # Concurrency
//
// A Host and a PluginScope may be used by several goroutines. One Refresh runs at a time.
// A concurrent Refresh waits and then runs itself, so it sees every change made before its
// call. A plugin runs on a goroutine of its own, which the host joins. The host does not
// join a goroutine that exceeds its deadline. A PluginScope holds its lock while it
// appends to the log.
//
// # Errors
//
// [ErrBadPlugin] comes from New for an incomplete Config, and is the reason in the
// refusal of a plugin without a valid name. Install, Refresh and Close return the errors
// of the log, registry.ErrClosed after Close, and the cause of their context; the failure
// of a plugin is no error of the host.
//
// A plugin decides which tools it has; package toolfiles is an example. The laws are in
// host_test.go and scope_test.go, an example is in example_test.go.
package plugins
