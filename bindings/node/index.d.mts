// Types of the package where it is imported: those of require(), and all of them as the default.
import * as runnel from './index.js';

export * from './index.js';
export { runnel as default };
