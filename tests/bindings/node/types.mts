// Compiled by tsc as Node resolves modules: the default export has what the names have.
import runnel from 'runnel';
import { Engine, Session } from 'runnel';

const engine: Engine = new runnel.Engine({ computeThreads: 1 });
const again: runnel.Engine = engine;
const session: Session = (await again.loadModel('x.gguf')).session();
console.log(runnel.version.length, session.id, engine instanceof runnel.Engine);

// @ts-expect-error: there is no such export
runnel.nothing;
